"""Drop documents that are not running text by shares of letters, digits, symbols, capitals, long words, and repetition.

    "4711 0815 1234 ..."             ->  dropped: digits
    "Buy now! Buy now! Buy now! ..." ->  dropped: pairs of words

The rules are those of Gopher (Rae et al. 2021) and C4 (Raffel et al. 2020), adapted to all languages: a word is a run
of letters and digits, or one Chinese or Japanese character. Rules on the length of words are not applied to scripts
without spaces, and rules on lines not to texts of fewer than ten lines. Shares of characters do not count white space.
The first broken rule is counted as `ratios: NAME`. A share of 1 (upper bound) or 0 (lower bound) turns a rule off.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ordsmed.base.menu import Choice
from ordsmed.corpus import repetition
from ordsmed.text.read import tally

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

_BLANK, _LETTER, _UPPER, _LOWER, _UNSPACED, _DIGIT, _SIGN, _LOST = range(8)
# scripts written without spaces: Thai, Lao, Burmese, Khmer, Chinese, Japanese
_UNSPACED_RANGES = (
    (0xE00, 0xEFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3040, 0x312F),
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
_HAN = "\u3005-\u3007\u3040-\u312f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_CHINESE, _RUN = re.compile(f"[{_HAN}]"), re.compile(r"\w+")
_WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+")
_FEWEST = 10  # lines; the rules on lines are not applied to shorter texts
_PRINTED = re.compile("[!-~]+")
_BULLETS = frozenset("•‣▪▶►●○■□◦⁃*-–·")
_STOPS = frozenset(".!?…。！？｡؟۔।॥።։\"'”’»」』)")


@dataclass(frozen=True)
class Ratios(Choice):
    """Keeps documents that look like running text."""

    shortest: int = 200
    "characters; shorter texts are kept"
    letters: float = 0.6
    "least share of characters that are letters"
    digits: float = 0.2
    "largest share of characters that are digits"
    signs: float = 0.3
    "largest share of characters that are punctuation or symbols"
    capitals: float = 0.5
    "largest share of letters that are capitals"
    lost: float = 0.01
    "largest share of characters that are U+FFFD"
    longest_word: int = 1000
    "largest number of ASCII characters in a row without white space; 0: no limit"
    min_mean_word: float = 2.0
    "least mean length of words separated by white space"
    max_mean_word: float = 15.0
    "largest mean length of words separated by white space; 0: no limit"
    bullets: float = 0.9
    "largest share of lines that begin with a bullet"
    cut_lines: float = 0.3
    "largest share of lines that end in an ellipsis"
    ended_lines: float = 0.0
    "least share of lines that end like sentences"
    repeated_lines: float = 0.3
    "largest share of lines that occurred before"
    repeated_line_characters: float = 0.2
    "largest share of characters in lines that occurred before"
    pairs: float = 0.2
    "largest share of characters in the repeated pair of words that covers most"
    triples: float = 0.18
    "the same for three words"
    fours: float = 0.16
    "the same for four words"
    repeated_tens: float = 0.2
    "largest share of characters in runs of ten words that occurred before"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, share = getattr(self, field.name), field.name not in _COUNTS
            if value < 0 or (share and value > 1):
                wanted = "a share from 0 to 1" if share else "0 or more"
                raise ValueError(f"{field.name}: found {value}; wanted {wanted}")

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if len(text) < self.shortest or (broken := next(self._broken(text), None)) is None:
            return text
        tally().left_out[f"ratios: {broken.replace('_', ' ')}"] += 1
        return None

    def _broken(self, text: str) -> Iterator[str]:
        """Yield the rules that a text breaks. Nothing is computed for rules that are off."""
        for measure, names in _MEASURES.items():
            limits = {name: getattr(self, name) for name in names}
            limits = {name: limit for name, limit in limits.items() if limit != _OFF.get(name, 1)}
            shares = measure(text) if limits else {}
            yield from (name for name in limits if name in shares and _breaks(name, shares[name], limits[name]))


def _breaks(name: str, value: float, limit: float) -> bool:
    return value < limit if name in _LEAST else value > limit


def _characters(text: str) -> dict[str, float]:
    import numpy as np

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    count = [int(number) for number in np.bincount(_table()[codes], minlength=_LOST + 1)]
    alphabetic = count[_LETTER] + count[_UPPER] + count[_LOWER] + count[_UNSPACED]
    printed = max(sum(count) - count[_BLANK], 1)
    kinds = {"letters": alphabetic, "digits": count[_DIGIT], "signs": count[_SIGN], "lost": count[_LOST]}
    shares = {name: number / printed for name, number in kinds.items()}
    return {**_lengths(text, count), **shares, "capitals": count[_UPPER] / max(alphabetic, 1)}


def _lengths(text: str, count: list[int]) -> dict[str, float]:
    words = text.split()
    runs = words if text.isascii() else _PRINTED.findall(text)  # a paragraph of Chinese is not a word
    longest = max(map(len, runs), default=0)
    if 2 * count[_UNSPACED] > sum(count[_LETTER : _UNSPACED + 1]):
        return {"longest_word": longest}
    mean = (sum(count) - count[_BLANK]) / max(len(words), 1)
    return {"longest_word": longest, "min_mean_word": mean, "max_mean_word": mean}


def _lines(text: str) -> dict[str, float]:
    lines = [line for raw in text.split("\n") if (line := raw.strip())]
    if (number := len(lines)) < _FEWEST:
        return {}
    length = sum(map(len, lines))
    seen: set[str] = set()
    again = [line for line in lines if line in seen or seen.add(line)]  # type: ignore[func-returns-value]
    return {
        "bullets": sum(line[0] in _BULLETS for line in lines) / number,
        "cut_lines": sum(line.endswith(("...", "…")) for line in lines) / number,
        "ended_lines": sum(line[-1] in _STOPS for line in lines) / number,
        "repeated_lines": len(again) / number,
        "repeated_line_characters": sum(map(len, again)) / length,
    }


def _repetition(text: str) -> dict[str, float]:
    import numpy as np

    words = (_WORD if _CHINESE.search(text) else _RUN).findall(text)
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    total = max(int(lengths.sum()), 1)
    keys = repetition.keys(words)
    runs = {"pairs": 2, "triples": 3, "fours": 4}
    top = {name: _top(repetition.grams(keys, n), repetition.sums(lengths, n)) / total for name, n in runs.items()}
    return {**top, "repeated_tens": _again(repetition.grams(keys, 10), lengths, 10) / total}


def _top(grams: Numbers, lengths: Numbers) -> float:
    """Return the number of characters covered by the repeated run of words that covers most; 0 if none is repeated."""
    import numpy as np

    order, begins = repetition.group_equal(grams)
    counts = np.diff(begins, append=len(order))
    return int((counts * lengths[order[begins]])[counts > 1].max(initial=0))


def _again(grams: Numbers, lengths: Numbers, n: int) -> float:
    """Return the number of characters of words in runs of n that occurred before."""
    import numpy as np

    order, begins = repetition.group_equal(grams)
    if len(begins) == len(order):
        return 0
    again = np.ones(len(grams), bool)
    again[np.minimum.reduceat(order, begins)] = False
    covered = np.zeros(len(lengths), bool)
    for at in range(n):
        covered[at : at + len(again)] |= again
    return int(lengths[covered].sum())


@functools.cache
def _table() -> Numbers:
    import unicodedata

    import numpy as np

    kinds = {"Lu": _UPPER, "Lt": _UPPER, "Ll": _LOWER, "Nd": _DIGIT, "No": _DIGIT, "Zs": _BLANK, "Cc": _BLANK}
    by_first = {"L": _LETTER, "M": _LETTER, "N": _LETTER, "Z": _BLANK}
    categories = map(unicodedata.category, map(chr, range(0x110000)))
    table = np.fromiter((kinds.get(kind, by_first.get(kind[0], _SIGN)) for kind in categories), np.uint8, 0x110000)
    for first, last in _UNSPACED_RANGES:
        table[first : last + 1][table[first : last + 1] == _LETTER] = _UNSPACED
    table[0xFFFD] = _LOST
    return table


_MEASURES: dict[Callable[[str], dict[str, float]], tuple[str, ...]] = {
    _characters: (
        *("letters", "digits", "signs", "lost", "capitals"),
        *("longest_word", "min_mean_word", "max_mean_word"),
    ),
    _lines: ("bullets", "cut_lines", "ended_lines", "repeated_lines", "repeated_line_characters"),
    _repetition: ("pairs", "triples", "fours", "repeated_tens"),
}
_COUNTS = frozenset({"shortest", "longest_word", "min_mean_word", "max_mean_word"})
_LEAST = frozenset({"letters", "min_mean_word", "ended_lines"})
_OFF = dict.fromkeys(_LEAST | _COUNTS, 0)
