"""Cleaning that changes no word: Unicode normalization, no control characters, tidy white space; line ends are kept."""

import re
import unicodedata
from typing import Literal

Form = Literal["NFC", "none"]

# NUL and the other controls carry no text; a form feed, a vertical tab, U+0085, U+2028 and U+2029 are line ends
_BREAKS = re.compile("[\x0b\x0c\x85\u2028\u2029]|\r\n?")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_RUNS = re.compile(r"[^\S\n]{2,}|\t")
_ODD_BLANK = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_EDGES = re.compile(r" ?\n[ \n]*")


def tidy(text: str, form: Form = "NFC") -> str:
    """Drop control characters and empty lines, trim lines, collapse white space, and apply the normal form."""
    if form == "NFC" and not text.isascii() and not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    text = _CONTROLS.sub("", _BREAKS.sub("\n", text))
    if "  " in text or "\t" in text or (not text.isascii() and _ODD_BLANK.search(text)):
        text = _RUNS.sub(" ", text)
    if " \n" in text or "\n " in text or "\n\n" in text:
        text = _EDGES.sub("\n", text)
    return text.strip()
