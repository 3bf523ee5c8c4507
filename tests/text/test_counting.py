"""Words of a text: where each begins, as a slow reader finds them by the names of the characters."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ordsmed.text.counting import KINDS, words

LETTERS = re.compile(
    "CJK UNIFIED IDEOGRAPH|CJK COMPATIBILITY IDEOGRAPH|HIRAGANA LETTER|KATAKANA LETTER|HALFWIDTH KATAKANA"
    "|KATAKANA-HIRAGANA PROLONGED SOUND MARK|THAI CHARACTER (?!PAIYANNOI)"
)


def kind(letter: str) -> str:
    """The class of a character: a word by itself, punctuation next to such words, either, white space, or another."""
    name, category, code = unicodedata.name(letter, ""), unicodedata.category(letter), ord(letter)
    if letter.isspace():
        return "space"
    if letter in "々〇" or (LETTERS.match(name) and category[0] == "L" and not 0x1AFF0 <= code < 0x20000):
        return "letter"
    if letter in "〆ゟ゠ヽヾヿ":
        return "other"
    if (name.startswith("THAI") and category not in ("Nd", "Sc")) or 0x3001 <= code <= 0x30FF:
        return "mark"
    if 0xFF01 <= code <= 0xFF65 and category[0] in "PS":
        return "mark"
    return "sign" if (code < 0x80 and category[0] in "PS") or letter == "·" or 0x2010 <= code <= 0x2027 else "other"


def test_the_kinds_of_characters() -> None:
    named = ["other", "space", "letter", "mark", "sign"]
    known = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    wrong = {chr(code): named[KINDS[code]] for code in known if named[KINDS[code]] != kind(chr(code))}
    assert not wrong
    assert [named[KINDS[code]] for code in (0x3040, 0x4DC0, 0x9FFF, 0x323AF, 0x323B0)] == [
        "other",
        "other",
        "letter",
        "letter",
        "other",
    ]


def slowly(text: str) -> list[int]:
    """A slow implementation: up to two signs next to such a letter or its punctuation are not part of a word."""
    kinds = [kind(letter) for letter in text]
    for _ in range(2):
        near = [{"letter", "mark"} & {*kinds[max(n - 1, 0) : n], *kinds[n + 1 : n + 2]} for n in range(len(text))]
        kinds = ["mark" if found == "sign" and beside else found for found, beside in zip(kinds, near, strict=True)]
    if "letter" not in kinds:
        kinds = ["space" if letter.isspace() else "other" for letter in text]
    within = [found in ("sign", "other") for found in kinds]
    return [n for n, found in enumerate(kinds) if found == "letter" or (within[n] and not (n and within[n - 1]))]


KNOWN = st.characters(exclude_categories=["Cn", "Co", "Cs"])


@given(text=st.text(st.one_of(st.sampled_from("a b.…“”你ร。ー\u3000\t・"), KNOWN), max_size=25))
@example("a……你……b")
@example("。a.")
@example("x ………你")
@example("x …………你")
@example("\u3000a\u2028b\x1cc")
def test_words_are_those_of_a_slow_reader(text: str) -> None:
    assert words(text).tolist() == slowly(text)


@pytest.mark.parametrize("text", ["", " ", "a", " ab  c\n", "a\x1cb\x0bc\x85", "x" * 9 + "\t."])
def test_where_words_begin(text: str) -> None:
    wanted = [found.start() for found in re.finditer(r"\S+", text)]
    assert words(text).tolist() == wanted
    assert words(text + "\u00e5").tolist()[: len(wanted)] == wanted
