"""Detokenizers by the name of a test set: restore the original text of word-level test sets, as Megatron does.

"the cat , @-@ sized ( 24 in ) "  ->  "the cat, -sized (24 in)"
"""

from __future__ import annotations

import re
from collections.abc import Callable

SIGNS = [":", ";", ".", "!", "?", ","]
PAIRS = (
    (r"\(\s*([^\)]*?)\s*\)", r"(\1)"),
    (r"\[\s*([^\]]*?)\s*\]", r"[\1]"),
    (r"{\s*([^}]*?)\s*}", r"{\1}"),
    (r"\"\s*([^\"]*?)\s*\"", r'"\1"'),
    (r"'\s*([^']*?)\s*'", r"'\1'"),
)


def wikitext(text: str) -> str:
    """Restore contractions, numbers, punctuation, brackets and headings; the order of these steps matters."""
    text = text.replace("s '", "s'")
    for sign in "-,.":
        text = text.replace(f" @{sign}@ ", sign)
    for sign in SIGNS:
        text = text.replace(f" {sign} ", f"{sign} ")
    for pattern, whole in PAIRS:
        text = re.sub(pattern, whole, text)
    for count in (4, 3, 2):
        text = text.replace(" ".join("=" * count), "=" * count)
    text = text.replace(" ° ", "°").replace(" \n", "\n").replace("\n ", "\n")
    return text.replace(" N ", " 1 ").replace(" 's", "'s")


def ptb(text: str) -> str:
    text = text.replace(" '", "'").replace(" \n", "\n").replace("\n ", "\n").replace(" n't", "n't")
    return text.replace(" N ", "1 ").replace("$ 1", "$1").replace("# 1", "#1")


def same(text: str) -> str:
    return text


BY_SET: dict[str, Callable[[str], str]] = {
    "wikitext": wikitext,
    "wikitext-raw": wikitext,
    "ptb": ptb,
    "lambada": same,
    "none": same,
}
