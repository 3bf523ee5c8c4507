"""Items, which are token sequences to score, and their scores.

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
    """Tokens of a text without special tokens; those from index `first` on are scored."""

    pieces: Ints
    first: int = 0
    sign: bool = True  # put the start token before them? Masked models always do
    words: tuple[str, ...] = ()  # the words as text, for models that read characters
    hidden: Ints | None = None  # positions to mask together and to score; None: those from `first` on

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def scored_count(self) -> int:
        return len(self.pieces) - self.first if self.hidden is None else len(self.hidden)


@dataclass(frozen=True)
class Scores:
    """Scores of the scored tokens of an item."""

    logs: NDArray[np.float64]  # natural log-probabilities
    best: NDArray[np.bool_]  # is the token the likeliest one? Only computed on request

    @property
    def total(self) -> float:
        return float(self.logs.sum())


class Scorer(Protocol):
    """Interface to a model that scores tokens; there is one implementation per model family."""

    way: str  # causal, masked, word, detect, forward, backward or mean
    max_tokens: int  # longest item, in tokens
    tokenizer: Tokenizer
    start_tokens: Ints | None  # start tokens of a long text; None: the model does not read in windows
    by_line: bool  # is every line of a text scored separately?

    @property
    def chained(self) -> bool:
        """Whether the probabilities of a text's tokens multiply to the probability of the text."""

    def cut(self, texts: list[str]) -> list[Item]:
        """Tokenize texts into items whose tokens are all scored."""

    def cost(self, item: Item) -> int:
        """Return the number of tokens to compute for an item."""

    def spelled(self, text: str, item: Item) -> int:
        """Return the bytes of a text that are covered by unknown tokens."""

    def scores(self, items: list[Item], *, best: bool = False) -> list[Scores]:
        """Score items, in order; with `best`, also find which tokens are the likeliest."""


def split(logs: NDArray[np.float64], best: NDArray[np.bool_], sizes: list[int]) -> list[Scores]:
    ends = np.cumsum(sizes)[:-1]
    return [Scores(*parts) for parts in zip(np.split(logs, ends), np.split(best, ends), strict=True)]
