"""Number of words of text in the rows of a step, repetitions included; a function of the rows' numbers.

A store made by `encode` has the number of words of each sentence. A row that begins or ends within a sentence counts
the same share of its words as of its tokens, rounded so that the parts of a sentence add up to all its words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ordsmed.data.rows import Rows
from ordsmed.data.windows import Ints

MILLION = 1_000_000
BABYLM = (*(n * unit * MILLION for unit in (1, 10, 100) for n in range(1, 10)), 1000 * MILLION)
WordNumbers = tuple[int, ...] | Literal["babylm"]  # as in recipes


class CountedSource(Protocol):
    @property
    def starts(self) -> Ints:
        """Return the first token of each sentence; last = number of tokens."""

    @property
    def words(self) -> NDArray[np.int32]:
        """Return the number of words of each sentence."""


class CountedRows(Protocol):
    sources: Sequence[CountedSource]

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        """Return the token ranges of each source in these rows."""


class WordsSeen:
    def __init__(self, rows: CountedRows) -> None:
        self.ranges = rows.ranges
        self.sentences = [(source.starts, np.cumsum([0, *source.words]), source.words) for source in rows.sources]

    @staticmethod
    def of(rows: Rows) -> WordsSeen | None:
        """Return the counter, or None if the rows or stores have no word counts."""
        plain = cast(CountedRows, getattr(rows, "plain", rows))
        known = hasattr(plain, "ranges") and all(getattr(s, "words", None) is not None for s in plain.sources)
        return WordsSeen(plain) if known else None

    def __call__(self, numbers: Ints) -> int:
        return sum(
            int((self.before(source, stop) - self.before(source, start)).sum())
            for source, start, stop in self.ranges(numbers)
        )

    def before(self, source: int, tokens: Ints) -> Ints:
        """Return the number of words of a source before each token."""
        starts, sums, words = self.sentences[source]
        sentence = np.minimum(np.searchsorted(starts, tokens, "right") - 1, len(words) - 1)
        size = starts[sentence + 1] - starts[sentence]
        inside: Ints = sums[sentence] + words[sentence].astype(np.int64) * (tokens - starts[sentence]) // size
        return inside


def numbers(named: WordNumbers) -> tuple[int, ...]:
    return BABYLM if named == "babylm" else named


def label(words: int) -> str:
    """Return BabyLM's name of a checkpoint after this number of words: `chck_10M`."""
    return f"chck_{words // MILLION}M" if words % MILLION == 0 else f"chck_{words}"


def counted(label: str) -> int:
    number = label.removeprefix("chck_")
    return int(number[:-1]) * MILLION if number.endswith("M") else int(number)


def passed(targets: Iterable[int], before: int | None, after: int | None) -> list[str]:
    return [] if before is None or after is None else [label(n) for n in targets if before < n <= after]
