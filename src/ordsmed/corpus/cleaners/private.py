"""Replace personal data: e-mail and IP addresses, telephone, account, card and identity numbers.

    "Write to kari@eksempel.no or ring tlf. 22 33 44 55."  ->  "Write to <EMAIL> or ring tlf. <PHONE>."
    "In 1998-2004 it cost 12 345 678 kr (ISBN 978-0-306-40615-7, v. 10.2.3.1)."  ->  the same

Only certain matches are replaced: cards with a valid check digit (Luhn); accounts that are valid IBANs (modulo 97) or
Norwegian (modulo 11); identity numbers with check digits (no, se, fi) or by their form (dk, us); telephone numbers with
+ or 00 and a country, in the American form, or after a word for telephone. Names and street addresses are kept.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice


@dataclass(frozen=True)
class Private(Choice):
    """Replaces addresses, telephone numbers and numbers of persons."""

    emails: str = "<EMAIL>"
    "replaces an e-mail address; empty: keep it"
    machines: str = "<IP>"
    "replaces an IP address; empty: keep it"
    accounts: str = "<ACCOUNT>"
    "replaces a bank account; empty: keep it"
    cards: str = "<CARD>"
    "replaces the number of a payment card; empty: keep it"
    identities: str = "<ID>"
    "replaces a national identity number; empty: keep it"
    phones: str = "<PHONE>"
    "replaces a telephone number; empty: keep it"
    links: str = ""
    "replaces a web address; empty: keep it"

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if self.links and ("://" in text or "www." in text):
            text = _LINK.sub(lambda _: self.links, text)
        if self.emails and "@" in text:
            text = _EMAIL.sub(lambda _: self.emails, text)
        for starts, kinds in _KINDS.items():
            wanted = [(getattr(self, name), *kind) for name, *kind in kinds if getattr(self, name)]
            text = _replaced(text, starts, wanted) if wanted else text
        return text


_Check = Callable[[re.Match[str]], bool]


def _replaced(text: str, starts: re.Pattern[str], kinds: list[Any]) -> str:
    """Try every kind at each possible start of a number. The first kind whose check succeeds replaces it."""
    clean, done = list[str](), 0
    for at in (start.start() for start in starts.finditer(text)):
        for placeholder, pattern, is_one in kinds if at >= done else ():
            if (match := pattern.match(text, at)) and is_one(match):
                clean += text[done:at], placeholder
                done = match.end()
                break
    return "".join([*clean, text[done:]]) if clean else text


def _is_machine(match: re.Match[str]) -> bool:
    """Return whether a match is an IP address and not a version or chapter number.

    It needs ten or more characters, and no word such as "version" before it.
    """
    return len(match[0]) > 9 and _parses(match[0]) and not _VERSION.search(_words_before(match))


def _parses(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _is_iban(match: re.Match[str]) -> bool:
    characters = match[0].replace(" ", "")
    return int("".join(str(int(character, 36)) for character in characters[4:] + characters[:4])) % 97 == 1


def _is_identity(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    kind = match.lastgroup
    if kind == "us":
        return digits[:3] not in ("000", "666") and digits[0] != "9" and digits[3:5] != "00" and digits[5:] != "0000"
    if kind == "no":
        first = _modulo_11(digits[:10], (3, 7, 6, 1, 8, 9, 4, 5, 2, 1))
        return _day(digits) and first and _modulo_11(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1))
    finnish = match[0][-1] == "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(digits[:9]) % 31] and _day(digits)
    swedish = digits[-10:]  # year, month, day; Danish and Finnish numbers begin with the day
    danish = len(digits) == 10 and _day(digits)
    return finnish or (match[0][-1].isdigit() and (danish or (_day(swedish[4:6] + swedish[2:4]) and _luhn(swedish))))


def _is_phone(match: re.Match[str]) -> bool:
    digits = re.sub(r"\D", "", match[0])
    if "000 000" in match[0]:
        return False
    if match["national"]:
        named = _PHONE_WORD.search(_words_before(match)) is not None
        return named and 7 <= len(digits) <= 11 and not _YEARS.fullmatch(match[0])
    return bool(match["american"]) or 9 <= len(digits) <= 15


def _words_before(match: re.Match[str]) -> str:
    return match.string[max(match.start() - 24, 0) : match.start()].lower()


def _day(digits: str) -> bool:
    """Return whether digits are day and month. Norway adds 40 to either for D numbers and synthetic persons."""
    day, month = int(digits[:2]), int(digits[2:4])
    return 1 <= day % 40 <= 31 and day < 72 and 1 <= month % 40 <= 12 and month < 53


def _luhn(digits: str) -> bool:
    doubled = (int(digit) * (1 + position % 2) for position, digit in enumerate(reversed(digits)))
    return sum(n - 9 if n > 9 else n for n in doubled) % 10 == 0 and len(set(digits)) > 1


def _modulo_11(digits: str, weights: tuple[int, ...]) -> bool:
    return sum(int(d) * w for d, w in zip(digits, weights, strict=True)) % 11 == 0 and len(set(digits)) > 1


# These patterns match a character first and look back then, so that the search is fast in other text.
_NUMBER = re.compile(r"[+(0-9](?<![\w@].)(?<![0-9][.,:/+-].)(?=(?:[ .()+A-]{0,2}[0-9]){6})")
_WORD = re.compile(r"[A-Z](?<![\w@].)(?=[A-Z][0-9]{2})")
_COLONS = re.compile(r"[0-9A-Fa-f:](?<![\w@:].)(?=[0-9A-Fa-f]{0,3}:[0-9A-Fa-f:])")
_AFTER = r"(?![\w@]|[.,:/+-][0-9])"  # not part of a longer word or number
_LINK = re.compile(r"(?<!\w)(?:(?:https?|ftp)://|www\.)[^\s<>\"]*[^\s<>\".,;:!?'’”»)\]]")
_EMAIL = re.compile(
    r"[\w.+%-](?<![\w.+%-].)[\w.+%-]{0,63}+@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-]|\.\w)"
)
_VERSION = re.compile(r"(?:\bv|ver|version|versjon|release|build|chapter|kapittel|kap|section|sec|punkt|§)[. ]*\Z")
_YEARS = re.compile("(?:19|20)[0-9]{2}[ -](?:19|20)[0-9]{2}")
_PHONE_WORD = re.compile(
    r"\b(?:telephone|telefon|telef|tel|tlf|phone|mobile|mobil|mob|fax|faks|call|ring|ringe|sms|whatsapp|handy|"
    r"puhelin|puh|tél|téléphone|teléfono|móvil|telefono|тел|телефон)"
    r"(?: (?:no|nr|number|nummer|på|til|us|at|on))?[.:]* *\(?\Z"
)
_IBANS = """
    AD24 AE23 AL28 AT20 BA20 BE16 BG22 CH21 CY28 CZ24 DE22 DK18 EE20 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 HR21
    HU28 IE22 IL23 IS26 IT27 KZ20 LB28 LI21 LT20 LU20 LV21 MC27 MD24 ME22 MK19 MT31 NL18 NO15 PL28 PT25 RO24 RS22 SA24
    SE24 SI19 SK24 SM27 TR26 UA29
"""  # country and length
_COUNTRIES = "|".join(rf"{iban[:2]}\d\d(?: ?[A-Z0-9]){{{int(iban[2:]) - 4}}}" for iban in _IBANS.split())
_CARD = r"[2-6][0-9]{3}([ -]?)[0-9]{4}\1[0-9]{4}\1[0-9]{4}|3[47][0-9]{2}([ -]?)[0-9]{6}\2[0-9]{5}"
_IDENTITY = r"""
    (?P<no>[0-9]{6}[ ]?[0-9]{5}) | (?P<us>[0-9]{3}-[0-9]{2}-[0-9]{4})
    | (?P<north>(?:19|20)?[0-9]{6}[-+A][0-9]{3}[0-9A-Y])"""
_PHONE = r"""
    (?:\+[1-9][0-9]{0,2} | 00[1-9][0-9]{0,2}(?=[ .-])) (?:[ .-]?(?:\([0-9]{1,4}\)|[0-9]{1,12})){1,6}
    | (?P<american>\([2-9][0-9]{2}\)[ ]?[2-9][0-9]{2}-[0-9]{4} | [2-9][0-9]{2}([.-])[2-9][0-9]{2}\2[0-9]{4})
    | (?<![0-9][ ]) (?P<national>[0-9]{2,11}(?:[ -][0-9]{2,4}){0,4})"""


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(f"(?:{pattern}){_AFTER}", re.VERBOSE if pattern.startswith("\n") else 0)


_IPV6, _NORWEGIAN = r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}", r"[0-9]{4}([. ])[0-9]{2}\1[0-9]{5}"
_ACCOUNT_WEIGHTS = (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)
_KINDS: dict[re.Pattern[str], list[tuple[str, re.Pattern[str], _Check]]] = {
    _WORD: [("accounts", _whole(_COUNTRIES), _is_iban)],
    _COLONS: [("machines", _whole(_IPV6), lambda match: sum(map(bool, match[0].split(":"))) > 2 and _parses(match[0]))],
    _NUMBER: [
        ("cards", _whole(_CARD), lambda match: _luhn(re.sub("[ -]", "", match[0]))),
        ("accounts", _whole(_NORWEGIAN), lambda match: _modulo_11(re.sub("[ .]", "", match[0]), _ACCOUNT_WEIGHTS)),
        ("identities", _whole(_IDENTITY), _is_identity),
        ("machines", _whole(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"), _is_machine),
        ("phones", _whole(_PHONE), _is_phone),
    ],
}
