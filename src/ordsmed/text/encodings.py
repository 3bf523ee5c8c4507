"""Which encoding bytes are in: what their marks, zeros and escapes say, or a careful guess by the letters of languages.

    b"\\xff\\xfeH\\0e\\0" -> "utf-16"    b"\\x1b$B..." -> "iso2022_jp"    b"...\\xe5 v\\xe6re" -> "cp1252"    else None

A guess is only made where one encoding gives what people write and no other does; a few lines may not be enough.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter

SAMPLE = 1 << 16  # bytes that are looked at
AUTO = "auto"
FEWEST = 8  # bytes beyond ASCII that tell another alphabet
LEAST, AHEAD = 0.6, 0.08  # how well the best must fit, and how much better than the next

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_ESCAPES = ((re.compile(rb"\x1b\$\)C"), "iso2022_kr"), (re.compile(rb"\x1b\$(?:[@AB]|\([@-Z])"), "iso2022_jp_2"))
_HZ = re.compile(rb"~\{(?:[\x21-\x77][\x21-\x7e])+~\}")
_RUN = re.compile(rb"[\x80-\xff]+")
_NEUTRAL = frozenset("‘’‚“”„«»‹›–—…•·°§©®™£€\u00a0\u00ad¡¿º、。，．・「」『』（）？！：；\u3000")

# Letters that texts of a language are mostly made of, beside ASCII's; and the share of them that is usual.
_CENTRAL = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž")
_LATIN = {
    "cp1252": ("æøåéèêòôóäöü", "åäöé", "áðéíóúýþæö", "äöüßé", "éèêëàâçîïôùûœæ", "áéíóúñü", "ãõáéíóúâêôàç", "àèéìíòóùú",
               "éëïöü", "äõöüšž"),
    "cp1250": _CENTRAL, "iso8859-2": _CENTRAL, "cp1254": ("çğıöşüâî",),
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž"),
}  # fmt: skip
_CYRILLIC, _KANA = "оеаинтсрвлкмдпу", "".join(map(chr, range(0x3041, 0x30FB)))
_OTHER = {
    "cp1251": (_CYRILLIC, 0.8), "koi8-r": (_CYRILLIC, 0.8), "iso8859-5": (_CYRILLIC, 0.8), "cp866": (_CYRILLIC, 0.8),
    "cp1253": ("αοιετνσρκπμλυςη", 0.8), "cp1255": ("יוהלארתמבש", 0.66), "cp1256": ("اليمونرتبه", 0.66),
    "cp874": ("านรอกเงมยล่ว", 0.6),
    "cp932": (_KANA, 0.4), "euc_jp": (_KANA, 0.4),
    "gb18030": ("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年", 0.16),
    "cp950": ("的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年", 0.16),
    "cp949": ("이다는을의에가고하지은를한로도기사어리자인시그나대해있서수", 0.3),
}  # fmt: skip


def known(name: str) -> str:
    """The name of an encoding of text, as Python spells it; ValueError where there is none of this name."""
    if name == AUTO:
        return name
    try:
        "a".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError, TypeError):
        raise ValueError(f"encoding: found {name!r}; wanted a name such as windows-1252, or {AUTO!r}") from None


def marked(sample: bytes) -> str | None:
    """UTF-8, -16 or -32 by the mark at the beginning, UTF-16 by its zeros."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    even, odd = sample[0 : len(sample) // 2 * 2 : 2].count(0), sample[1::2].count(0)
    fewer, more = sorted((even, odd))
    if len(sample) < 16 or 50 * more < len(sample) or 20 * fewer > more:  # a line end has one in every script
        return None
    if 4 * more < len(sample) and _is_utf_8(sample):  # only ASCII in UTF-16 is that too, and half of it zeros
        return None
    name = "utf-16-be" if even > odd else "utf-16-le"
    text = sample[: len(sample) // 2 * 2].decode(name, "replace")
    odd_signs = sum(text.count(sign) for sign in "\ufffd\0\ufffe\uffff")
    return name if odd_signs * 100 <= len(text) else None


def _is_utf_8(sample: bytes) -> bool:
    try:
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def escaped(sample: bytes) -> str | None:
    """An encoding of Japanese, Korean or Chinese that is written in ASCII: by its escapes."""
    for pattern, name in _ESCAPES:
        if b"\x1b" in sample and pattern.search(sample):
            return name
    if b"~{" in sample and len(found := _HZ.findall(sample)) >= 2:
        try:
            b"".join(found).decode("hz")
        except UnicodeDecodeError:
            return None
        return "hz"
    return None


def guess(sample: bytes, whole: bool) -> str | None:
    """The encoding of a text that begins so; None: it cannot be told. `whole`: there is no more of it."""
    if sure := marked(sample) or escaped(sample):
        return sure
    text = codecs.utf_8_decode(sample, "replace", whole)[0]
    high = len(text) - sum(map(str.isascii, text))
    if text.count("\ufffd") * 20 <= high:
        return "utf-8"
    runs = _RUN.findall(sample)
    length = sum(map(len, runs))
    latin = length < 1.8 * len(runs)  # letters of other alphabets stand beside one another
    if not latin and length < FEWEST:
        return None
    fits = []
    for name in _LATIN if latin else _OTHER:
        if (read := _read(sample, name)) is not None:
            signs = Counter(sign for sign in read.lower() if sign > "\x7f" and sign not in _NEUTRAL)
            of = [(letters, 1.0) for letters in _LATIN[name]] if latin else [_OTHER[name]]
            fits.append((max(_share(signs, *one) for one in of), name, read))
    fits.sort(key=lambda fit: -fit[0])
    if not fits or fits[0][0] < LEAST:
        return None
    others = [fit[0] for fit in fits[1:] if fit[2] != fits[0][2]]
    return fits[0][1] if fits[0][0] - max(others, default=0.0) >= AHEAD else None


def _share(signs: Counter[str], letters: str, usual: float) -> float:
    """How well signs fit a language."""
    known = sum(count for sign, count in signs.items() if sign in letters)
    return min(known / signs.total() / usual, 1.0) if signs else 1.0


def _read(sample: bytes, name: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(name)().decode(sample)
    except UnicodeDecodeError:
        return None
