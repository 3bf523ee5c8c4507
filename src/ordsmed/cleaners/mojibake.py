"""Text that was decoded with the wrong table, repaired by ftfy: only the places that look damaged are touched.

    "SÃ¸ren sa: â€œjaâ€\\x9d"   ->  "Søren sa: “ja”"
    "Søren sa: «ja»"           ->  the same, bit for bit

ftfy reads about 1 MB/s, so it sees only stretches in which a character that a leading byte of UTF-8 could have become
stands before one that a following byte could have become. Quotes, width, line ends and HTML are left as they are.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from ordsmed.base.errors import RecipeError

# the tables in which UTF-8 is read by mistake; in those of Macintosh and DOS quotation marks look like leading bytes,
# so there only a few leading bytes count
_TABLES = ("latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso-8859-2")
_OLD_TABLES = {"macroman": re.compile("‚Ä|√[^\\s\\w]"), "cp437": re.compile("ΓÇ|├[^\\s\\w]")}


@dataclass(frozen=True)
class Settings:
    """Repair of text decoded with the wrong table (mojibake)."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """The text with its damaged stretches repaired."""
        if text.isascii() or not _suspicious().search(text):
            return text
        return _STRETCH.sub(_repaired, text)


_STRETCH = re.compile(r"[^\n]{1,1000}+[^ \n]{0,100}+")  # to the end of a line, or a blank behind a thousand characters
_WORD = re.compile(r"[^ \t\n]+")
_LATIN, _FOREIGN = "[A-Za-z\u00c0-\u00d6\u00d8-\u024f]", "[\u0250-\u02ff\u0370-\u1dff]"
_MIXED = re.compile(f"{_LATIN}(?={_FOREIGN})|{_FOREIGN}(?={_LATIN})")


def _repaired(match: re.Match[str]) -> str:
    """Repaired as a whole; where good and damaged text are mixed, by words, and what is left place by place."""
    whole = _fixed(match[0], False)
    return _fixed(_WORD.sub(lambda word: _fixed(word[0], False), whole), True)


def _fixed(text: str, inside: bool) -> str:
    if text.isascii() or not _suspicious().search(text):
        return text
    fixed, steps = _ftfy().fix_encoding_and_explain(text, decode_inconsistent_utf8=inside)
    if any(table in _OLD_TABLES and not _OLD_TABLES[table].search(text) for _, table in steps):
        return text
    return text if _is_worse(text, fixed) else str(fixed)


def _is_worse(text: str, fixed: str) -> bool:
    """A repair that loses a character, makes a line, or puts a foreign letter into a Latin word is none."""
    mixed = _MIXED.search(fixed) is not None and _MIXED.search(text) is None
    return mixed or fixed.count("\ufffd") > text.count("\ufffd") or "\n" in fixed


@functools.cache
def _suspicious() -> re.Pattern[str]:
    """What the bytes of one character of UTF-8 look like in any of the tables, or a control that Windows prints."""
    shapes = [(0xC2, 0xDF, 1), (0xE0, 0xEF, 2), (0xF0, 0xF4, 3)]  # first bytes, and how many follow
    pairs = [
        f"[{_shown(first, last, table)}][{_shown(0x80, 0xBF, table)}\ufffd]{{{following}}}"
        for table in _TABLES
        for first, last, following in shapes
    ]
    leads, follows = ("".join(_shown(*bounds, table) for table in _TABLES) for bounds in ((0xC2, 0xF4), (0x80, 0xBF)))
    old = "|".join(pattern.pattern for pattern in _OLD_TABLES.values())
    return re.compile(f"[\x80-\x84\x86-\x9f]|[ÂÃ] |{old}|(?=[{leads}][{follows}\ufffd])(?:{'|'.join(pairs)})")


def _shown(first: int, last: int, table: str) -> str:
    """Bytes as a table shows them, for a set of a regular expression."""
    return re.escape(bytes(range(first, last + 1)).decode(table, "ignore"))


def _ftfy() -> Any:
    try:
        import ftfy
    except ImportError:
        raise RecipeError("mojibake", "`ftfy` is not installed", "", "pip install 'ordsmed[corpora]'") from None
    return ftfy
