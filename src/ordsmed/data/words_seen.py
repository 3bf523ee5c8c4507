"""Words seen: how many words of text the rows of a step hold, each time they pass; a function of the rows' numbers.

A store that `encode` made has the words of each sentence beside it. A row that begins or ends within a sentence holds
as large a share of its words as of its tokens, rounded so that neighbors together have all of them: an epoch of rows
has exactly the words of the text.
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
WordNumbers = tuple[int, ...] | Literal["babylm"]  # as recipes name them


class CountedSource(Protocol):
    """Text of which the words of each sentence are known."""

    @property
    def starts(self) -> Ints:
        """The token each sentence begins with; last = number of tokens."""

    @property
    def words(self) -> NDArray[np.int32]:
        """How many words each has."""


class CountedRows(Protocol):
    """Rows of such text."""

    sources: Sequence[CountedSource]

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        """Which tokens of each source these rows hold."""


class WordsSeen:
    """Of the rows of one phase."""

    def __init__(self, rows: CountedRows) -> None:
        self.ranges = rows.ranges
        self.sentences = [(source.starts, np.cumsum([0, *source.words]), source.words) for source in rows.sources]

    @staticmethod
    def of(rows: Rows) -> WordsSeen | None:
        """None: of such rows, or of a store that was made elsewhere or earlier, nobody knows."""
        plain = cast(CountedRows, getattr(rows, "plain", rows))
        known = hasattr(plain, "ranges") and all(getattr(s, "words", None) is not None for s in plain.sources)
        return WordsSeen(plain) if known else None

    def __call__(self, numbers: Ints) -> int:
        """Of the rows with these running numbers."""
        return sum(
            int((self.before(source, stop) - self.before(source, start)).sum())
            for source, start, stop in self.ranges(numbers)
        )

    def before(self, source: int, tokens: Ints) -> Ints:
        """How many words of a source stand before each of these tokens."""
        starts, sums, words = self.sentences[source]
        sentence = np.minimum(np.searchsorted(starts, tokens, "right") - 1, len(words) - 1)
        size = starts[sentence + 1] - starts[sentence]
        inside: Ints = sums[sentence] + words[sentence].astype(np.int64) * (tokens - starts[sentence]) // size
        return inside


def numbers(named: WordNumbers) -> tuple[int, ...]:
    """Those that a recipe names."""
    return BABYLM if named == "babylm" else named


def label(words: int) -> str:
    """What BabyLM calls the weights after so many words: `chck_10M`."""
    return f"chck_{words // MILLION}M" if words % MILLION == 0 else f"chck_{words}"


def counted(label: str) -> int:
    """The number of words that such a label tells."""
    number = label.removeprefix("chck_")
    return int(number[:-1]) * MILLION if number.endswith("M") else int(number)


def passed(targets: Iterable[int], before: int | None, after: int | None) -> list[str]:
    """By their labels the numbers of words that a step went past, or came to."""
    return [] if before is None or after is None else [label(n) for n in targets if before < n <= after]
