"""Items: tokens of a text of which some are scored, and the scores they get.

"the newts ran"  ->  Item(pieces, first=0)  ->  Scores(logs=[-3.1, -7.9, -2.2], best=[False, False, True])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ordsmed.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Item:
    """Tokens in their order, without signs, which are scored from `first` on."""

    pieces: Ints
    first: int = 0
    sign: bool = True  # does a sign that a text begins stand before them? A masked model's always does
    words: tuple[str, ...] = ()  # as they are written, for who reads letters
    hidden: Ints | None = None  # these are hidden all at once, and scored; None: those from `first` on, as the way says

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def asked(self) -> int:
        """How many tokens are scored."""
        return len(self.pieces) - self.first if self.hidden is None else len(self.hidden)


@dataclass(frozen=True)
class Scores:
    """What a model says of the scored tokens of an item."""

    logs: NDArray[np.float64]  # natural logarithms of their probabilities
    best: NDArray[np.bool_]  # is it the likeliest of all? Told where that is asked

    @property
    def total(self) -> float:
        return float(self.logs.sum())


class Scorer(Protocol):
    """How a model is read: what every family offers."""

    way: str  # causal, masked, word, detect, forward, backward or mean
    room: int  # as many tokens as an item may have
    tokenizer: Tokenizer
    lead: Ints | None  # signs that a long text begins with; None: it is not read in windows
    by_line: bool  # is every line of a text read by itself?

    @property
    def chained(self) -> bool:
        """Do the scores of a text's tokens multiply to its probability?"""

    def cut(self, texts: list[str]) -> list[Item]:
        """Texts as items all of whose tokens are scored."""

    def cost(self, item: Item) -> int:
        """How many tokens are computed for it."""

    def spelled(self, text: str, item: Item) -> int:
        """Bytes of a text that its tokens do not tell, for they are unknown."""

    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        """Of each item, in their order; `best`: also which tokens are the likeliest."""


def split(logs: NDArray[np.float64], best: NDArray[np.bool_], sizes: list[int]) -> list[Scores]:
    """Scores of many items, end to end, as those of each."""
    ends = np.cumsum(sizes)[:-1]
    return [Scores(*parts) for parts in zip(np.split(logs, ends), np.split(best, ends), strict=True)]
