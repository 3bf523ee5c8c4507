"""Widen a part of a text to whole words, in any script, without cutting a character made of several code points.

    "It rained in Brønnøysund's harbour."  13-18, Brønn  ->  13-24, Brønnøysund

The rules are mainly those of Unicode's annex 29. Han, Thai and similar scripts write no spaces between words: their
letters are not joined to words, but a letter is never separated from its combining marks.
"""

import unicodedata
from functools import cache

UNSPACED = ("CJK", "HIRAGANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "TAI ", "NEW TAI", "JAVANESE", "BALINESE")
BETWEEN_LETTERS = "'’ʼ＇·:\u05f4"  # don't, l·l, EU:n, and the double mark (gershayim) in Hebrew abbreviations
BETWEEN_DIGITS = ".,’'٫٬"
JOINER = "\u200d"
SKINS = range(0x1F3FB, 0x1F400)
FLAGS = range(0x1F1E6, 0x1F200)  # regional indicators: two of them are a flag
NO, LETTER, DIGIT, KATAKANA, ALONE = range(5)


def whole(text: str, start: int, end: int) -> tuple[int, int]:
    """Return `start` and `end` moved outward until they cut no word. An English possessive 's is not added."""
    while 0 < start < len(text) and _joined(text, start):
        start -= 1
    while 0 < end < len(text) and _joined(text, end) and not _possessive(text, end):
        end += 1
    return start, end


def _joined(text: str, at: int) -> bool:
    previous, following = text[at - 1], text[at]
    if previous.isspace() or following.isspace():
        return False
    if _modifies_previous(following) or previous == JOINER:
        return True
    if ord(previous) in FLAGS and ord(following) in FLAGS:
        first = at
        while first and ord(text[first - 1]) in FLAGS:
            first -= 1
        return (at - first) % 2 == 1
    left, right = _kind(_base_character(text, at)), _kind(following)
    if left == NO:
        return at > 1 and _mid(previous, _kind(_base_character(text, at - 1)), right)
    if right == NO:
        return at + 1 < len(text) and _mid(following, left, _kind(text[at + 1]))
    return ALONE not in (left, right) and (left == KATAKANA) == (right == KATAKANA)


def _mid(mark: str, left: int, right: int) -> bool:
    """Return whether `mark` is inside a word or a number, given the kinds of the characters on its two sides."""
    if left == right == DIGIT:
        return mark in BETWEEN_DIGITS
    return left == LETTER and right == LETTER and mark in BETWEEN_LETTERS


def _possessive(text: str, at: int) -> bool:
    if text[at] not in "'’" or text[at + 1 : at + 2] not in ("s", "S"):
        return False
    return at + 2 == len(text) or not _joined(text, at + 2)


def _base_character(text: str, at: int) -> str:
    while at > 1 and _modifies_previous(text[at - 1]):
        at -= 1
    return text[at - 1]


def _modifies_previous(character: str) -> bool:
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
