"""Long documents: the documents of a store with a minimum number of tokens, with the interface of a store."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ordsmed.data.lexicon import Lexicon
from ordsmed.data.store import Ids, Ints, Store


@dataclass(frozen=True)
class LongDocuments:
    """The long documents of a store, with the interface that rows need; `numbers` are their numbers in the store."""

    store: Store
    numbers: Ints

    @staticmethod
    def of(store: Store, least: int) -> LongDocuments:
        return LongDocuments(store, np.flatnonzero(np.diff(store.document_starts) >= least))

    @property
    def document_count(self) -> int:
        return len(self.numbers)

    @property
    def token_count(self) -> int:
        return int(self.document_starts[-1])

    @property
    def prefix(self) -> Path:
        return self.store.prefix

    @property
    def lexicon(self) -> Lexicon | None:
        return self.store.lexicon

    @property
    def row_length(self) -> int:
        return self.store.row_length

    @property
    def given(self) -> NDArray[np.int32] | None:
        return None if self.store.given is None else self.store.given[self.numbers]

    @functools.cached_property
    def document_starts(self) -> Ints:
        """Return the first token of each document, counted among these documents; last = number of tokens."""
        begins, ends = self.store.document_starts[self.numbers], self.store.document_starts[self.numbers + 1]
        return np.concatenate([[0], np.cumsum(ends - begins)])

    @functools.cached_property
    def shifts(self) -> Ints:
        """Return the offset between each document's tokens in the store and among the long documents."""
        return self.store.document_starts[self.numbers] - self.document_starts[:-1]

    @functools.cached_property
    def starts(self) -> Ints:
        borders = self.store.starts
        first = np.searchsorted(borders, self.store.document_starts[self.numbers])
        counts = np.searchsorted(borders, self.store.document_starts[self.numbers + 1]) - first
        inside = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        return np.append(borders[inside] - np.repeat(self.shifts, counts), self.token_count)

    @functools.cached_property
    def words(self) -> NDArray[np.int32] | None:
        begins = self.starts[:-1]
        document = np.searchsorted(self.document_starts, begins, "right") - 1
        inside = np.searchsorted(self.store.starts, begins + self.shifts[document])
        return None if self.store.words is None else self.store.words[inside]

    @property
    def tokens(self) -> LongTokens:
        return LongTokens(self)


@dataclass(frozen=True)
class LongTokens:
    of: LongDocuments

    def __len__(self) -> int:
        return self.of.token_count

    def __getitem__(self, positions: NDArray[np.integer] | slice) -> Ids:
        if isinstance(positions, slice):
            positions = np.arange(*positions.indices(len(self)))
        document = np.searchsorted(self.of.document_starts, positions, "right") - 1
        return self.of.store.tokens[positions + self.of.shifts[document]]
