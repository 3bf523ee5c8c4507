"""Repair text that was decoded with the wrong table (mojibake), with ftfy. Only text that looks damaged is changed.

    "SÃ¸ren sa: â€œjaâ€\\x9d"   ->  "Søren sa: “ja”"
    "Søren sa: «ja»"           ->  the same, bit for bit

ftfy reads about 1 MB/s, so it gets only stretches in which a character that a leading byte of UTF-8 could have become
is followed by one that a continuation byte could have become. Quotes, width, line ends and HTML are not changed. A
single suspicious character among correct words may be intended: if ftfy does not consider it damaged in its line, it is
repaired only if the text contains another.
"""

import functools
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice

# Tables with which UTF-8 is decoded by mistake. In those of Macintosh and DOS quotation marks, mathematical symbols and
# box drawing look like its bytes, so only sequences that no text contains count.
_TABLES = ("latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso-8859-2")
_OLD_TABLES = {
    "macroman": re.compile(
        "‚Ä|√[^\\s\\w]|(?<=[A-Za-z])√[À-ÿªº]|[ƒ≈][À-ÿ°´](?=[A-Za-z])|(?:◊[^\\s]){2}|(?:[ÿŸ][^\\sa-z0-9]){2}"
    ),
    "cp437": re.compile(
        "ΓÇ|├[^\\s\\w]|ß[\u2500-\u257f]|(?:[╨╤][^\\s]){2}|(?<![\u2500-\u257f])[─┼][À-ÿƒ](?=\\w)"
        "|(?<=[^\\W\\d_])[─├┼][À-ÿƒªº]"
    ),
}

_OLD_LEADS = "‚√ƒ≈◊ÿŸΓß─├┼╤╨"  # first characters of these patterns


@dataclass(frozen=True)
class Mojibake(Choice):
    """Repairs text decoded with the wrong table."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if text.isascii() or not _suspicious().search(text):
            return text
        several = _is_damaged_twice(text)
        return _STRETCH.sub(lambda stretch: _repaired(stretch[0], several), text)


# to the end of a line, or to a space after a thousand characters
_STRETCH = re.compile(r"[^\n]{1,1000}+[^ \n]{0,100}+")
_WORD = re.compile(r"[^ \t\n]+")
_LATIN, _FOREIGN = "[A-Za-z\u00c0-\u00d6\u00d8-\u024f]", "[\u0250-\u02ff\u0370-\u1dff]"
_ODD = "[\u0250-\u02ff\u0370-\u03b0\u03ca-\u1dff]"  # without small Greek letters, which occur in scientific words
_MIXED = re.compile(f"{_LATIN}(?={_ODD}(?!{_FOREIGN}))|(?<!{_FOREIGN}){_ODD}(?={_LATIN})")
_MEANT = re.compile("[A-ZÀ-Þ]{2}Â\u00a0")  # capitals before a no-break space
_LOST = "ï¿½"  # U+FFFD in UTF-8, decoded wrongly


def _is_damaged_twice(text: str) -> bool:
    """Return whether the text has at least two places whose words can be repaired by themselves."""
    count, end = 0, 0
    for location in _suspicious().finditer(text):
        if location.start() >= end:
            earliest = max(location.start() - 100, end)
            start = max(earliest, *(text.rfind(blank, earliest, location.start()) + 1 for blank in " \t\n"))
            if (word := _WORD.match(text, start, start + 1000)) and _fixed_word(word[0]) != word[0]:
                count += len(_suspicious().findall(word[0]))
            end = word.end() if word else location.end()
        if count >= 2:
            return True
    return False


def _repaired(text: str, many: bool) -> str:
    """Repair a text as a whole; if good and damaged text are mixed, word by word, and the rest place by place."""
    if not many and _MEANT.search(text):
        return text
    whole = _fixed(text, False)
    if many:
        whole = _WORD.sub(lambda word: _fixed_word(word[0]), whole)
    return _fixed(whole, True)


@functools.lru_cache(1 << 12)
def _fixed_word(word: str) -> str:
    return _fixed(word, False)


def _fixed(text: str, inside: bool) -> str:
    if text.isascii() or not _suspicious().search(text):
        return text
    fixed, steps = _ftfy().fix_encoding_and_explain(text, decode_inconsistent_utf8=inside)
    if any(table in _OLD_TABLES and not _OLD_TABLES[table].search(text) for _, table in steps):
        return text
    return text if _is_worse(text, fixed) else str(fixed)


def _is_worse(text: str, fixed: str) -> bool:
    """Return whether a repair loses a character, adds a line, or puts a lone foreign letter into a Latin word."""
    mixed = _MIXED.search(fixed) is not None and _MIXED.search(text) is None
    lost = fixed.count("\ufffd") > text.count("\ufffd") + text.count(_LOST)
    return mixed or lost or "\n" in fixed


@functools.cache
def _suspicious() -> re.Pattern[str]:
    """Return a pattern of a UTF-8 character decoded by any of the tables, or of a control that Windows prints."""
    shapes = [(0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)]  # first bytes, and how many follow
    pairs = [
        f"[{_characters(first, last, table)}][{_characters(0x80, 0xBF, table)}\ufffd]{{{following}}}"
        for table in _TABLES
        for first, last, following in shapes
    ]
    leads, follows = (
        "".join(_characters(*bounds, table) for table in _TABLES) for bounds in ((0xC2, 0xF4), (0x80, 0xBF))
    )
    old = "|".join(pattern.pattern for pattern in _OLD_TABLES.values())
    first = f"\x80-\x84\x86-\x9f{_OLD_LEADS}{leads}"
    return re.compile(
        f"(?=[{first}])(?:[\x80-\x84\x86-\x9f]|[ÂÃ] |{old}|(?=[{leads}][{follows}\ufffd])(?:{'|'.join(pairs)}))"
    )


def _characters(first: int, last: int, table: str) -> str:
    return re.escape(bytes(range(first, last + 1)).decode(table, "ignore"))


def _ftfy() -> ModuleType:
    try:
        import ftfy
    except ImportError:
        raise RecipeError("mojibake", "`ftfy` is not installed", "", "pip install 'ordsmed[corpora]'") from None
    return ftfy
