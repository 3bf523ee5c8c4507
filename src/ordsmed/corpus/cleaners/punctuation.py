"""Normalize punctuation by TABLE: quotation marks, dashes, dots, spaces and full-width characters become ASCII.

    “Yes” – he said… 10 km   ->  "Yes" - he said... 10 km

    quotes  “ ” „ ‟ ‶ ″ -> "    ‘ ’ ‚ ‛ ′ ‵ ´ -> '    ‴ -> '''
    dashes  ‐ ‑ ‒ – − ⁃ -> -    — ― -> --    ⸺ ⸻ -> ---
    dots    … -> ...    ‥ -> ..    ‼ -> !!    ⁇ -> ??    ⁈ -> ?!    ⁉ -> !?
    spaces  no-break, thin, hair, em, figure, ideographic and other spaces -> one ordinary space
    width   Ａ -> A    ３ -> 3    ！ -> !    and so for all of U+FF01 to U+FF5E
    angles  « » -> "    ‹ › -> '    (only on request: they are the quotation marks of many languages)

In a line with more Chinese and Japanese characters than Latin letters only spaces and full-width letters and digits are
changed; “ ” —— …… ！ are its usual punctuation. Letters that look like punctuation (ʻ ʼ ׳) and Arabic punctuation are
kept. Every replacement is ASCII and no ASCII character is replaced, so a second pass changes nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice

_WIDE = {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}
TABLE: Mapping[str, Mapping[str, str]] = {
    "quotes": {**dict.fromkeys("“”„‟‶″", '"'), **dict.fromkeys("‘’‚‛′‵´", "'"), "‴": "'''"},
    "dashes": {**dict.fromkeys("‐‑‒–−⁃", "-"), **dict.fromkeys("—―", "--"), **dict.fromkeys("⸺⸻", "---")},
    "dots": {"…": "...", "‥": "..", "‼": "!!", "⁇": "??", "⁈": "?!", "⁉": "!?"},
    "spaces": dict.fromkeys(
        "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
    ),
    "width": _WIDE,
    "angles": {**dict.fromkeys("«»", '"'), **dict.fromkeys("‹›", "'")},
}
_HAN = "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
_HAN += "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_CHINESE = re.compile(f"[{_HAN}]")
_LATIN = re.compile("[A-Za-zÀ-ÖØ-öø-ɏＡ-Ｚａ-ｚ]")


@dataclass(frozen=True)
class Punctuation(Choice):
    """Replaces punctuation by ASCII according to a table."""

    quotes: bool = True
    "curly and low quotation marks, apostrophes and primes become straight"
    dashes: bool = True
    "hyphens, minus and en dash become -, the em dash --"
    dots: bool = True
    "… becomes three dots, and the like"
    spaces: bool = True
    "no-break, thin, wide and other spaces become one ordinary space"
    width: bool = True
    "full-width letters, digits and symbols become ordinary ones"
    angles: bool = False
    "« » ‹ › become straight"

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if text.isascii():
            return text
        everywhere, in_chinese = self._tables()
        if not _CHINESE.search(text):
            return _replaced(text, everywhere)
        lines = text.split("\n")
        return "\n".join(_replaced(line, in_chinese if _is_chinese(line) else everywhere) for line in lines)

    def _tables(self) -> tuple[_Table, _Table]:
        return _tables(tuple(name for name in TABLE if getattr(self, name)))


_Table = tuple[re.Pattern[str] | None, Mapping[str, str]]


@functools.cache
def _tables(groups: tuple[str, ...]) -> tuple[_Table, _Table]:
    everywhere = {sign: to for name in groups for sign, to in TABLE[name].items()}
    in_chinese = {sign: to for sign, to in everywhere.items() if to == " " or to.isalnum()}
    return _compiled(everywhere), _compiled(in_chinese)


def _compiled(table: Mapping[str, str]) -> _Table:
    return (re.compile(f"[{re.escape(''.join(table))}]") if table else None), table


def _replaced(text: str, table: _Table) -> str:
    pattern, to = table
    return pattern.sub(lambda match: to[match[0]], text) if pattern else text


def _is_chinese(line: str) -> bool:
    return len(_CHINESE.findall(line)) > len(_LATIN.findall(line))
