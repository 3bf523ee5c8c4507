"""Edges of words in any script: a part of a text is widened until it cuts none, and no character made of several.

    "It rained in Brønnøysund's harbour."  13-18, Brønn  ->  13-24, Brønnøysund

By and large as Unicode's annex 29 has it. Han, Thai and the like put no blanks between words: no edge is looked for
among their letters, but none of them is parted from its marks.
"""

import unicodedata
from functools import cache

UNSPACED = ("CJK", "HIRAGANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI ", "NEW TAI", "JAVANESE", "BALINESE")
BETWEEN_LETTERS = "'’ʼ＇·:\u05f4"  # don't, l·l, EU:n, and the double mark of Hebrew's abbreviations
BETWEEN_DIGITS = ".,’'٫٬"
JOINER = "\u200d"
SKINS = range(0x1F3FB, 0x1F400)
FLAGS = range(0x1F1E6, 0x1F200)  # two of these letters are a flag
NO, LETTER, DIGIT, KATAKANA, ALONE = range(5)


def whole(text: str, start: int, end: int) -> tuple[int, int]:
    """The part from `start` to `end`, widened until no word is cut; an English 's is no part of a name."""
    while 0 < start < len(text) and _joined(text, start):
        start -= 1
    while 0 < end < len(text) and _joined(text, end) and not _possessive(text, end):
        end += 1
    return start, end


def _joined(text: str, at: int) -> bool:
    """Do the characters before and behind a place belong together?"""
    before, after = text[at - 1], text[at]
    if before.isspace() or after.isspace():
        return False
    if _hangs_on(after) or before == JOINER:
        return True
    if ord(before) in FLAGS and ord(after) in FLAGS:
        first = at
        while first and ord(text[first - 1]) in FLAGS:
            first -= 1
        return (at - first) % 2 == 1
    left, right = _kind(_bearer(text, at)), _kind(after)
    if left == NO:
        return at > 1 and _mid(before, _kind(_bearer(text, at - 1)), right)
    if right == NO:
        return at + 1 < len(text) and _mid(after, left, _kind(text[at + 1]))
    return ALONE not in (left, right) and (left == KATAKANA) == (right == KATAKANA)


def _mid(mark: str, left: int, right: int) -> bool:
    """Does a mark stand inside a word, or a number, between what is of these kinds?"""
    if left == right == DIGIT:
        return mark in BETWEEN_DIGITS
    return left == LETTER and right == LETTER and mark in BETWEEN_LETTERS


def _possessive(text: str, at: int) -> bool:
    if text[at] not in "'’" or text[at + 1 : at + 2] not in ("s", "S"):
        return False
    return at + 2 == len(text) or not _joined(text, at + 2)


def _bearer(text: str, at: int) -> str:
    """The character before a place that is more than a mark on another."""
    while at > 1 and _hangs_on(text[at - 1]):
        at -= 1
    return text[at - 1]


def _hangs_on(character: str) -> bool:
    """Is it a mark on the character before it?"""
    return character in ("\u200c", JOINER) or ord(character) in SKINS or unicodedata.category(character)[0] == "M"


@cache
def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category[0] not in "LN" and category != "Pc":
        return NO
    name = unicodedata.name(character, "")
    if name.startswith(UNSPACED):
        return ALONE
    if "KATAKANA" in name:
        return KATAKANA
    return DIGIT if category == "Nd" else LETTER
