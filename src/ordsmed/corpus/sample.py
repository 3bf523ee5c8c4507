"""A sample with a given number of words, in an order that depends only on the texts, not on files or processes.

entries of all chunks -> sorted by a number drawn from each document's words -> each split until it has its words
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordsmed.corpus.chunks import Chunk

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class DrawnSample:
    """The documents to write, in order."""

    chunk: NDArray[np.int64]  # index of each document's chunk
    at: NDArray[np.uint64]  # byte offset in the chunk
    side: NDArray[np.int64]
    counts: NDArray[np.int64]  # sentences, words, characters and bytes
    documents: int  # number of documents left out
    words: int  # words in the documents left out

    @staticmethod
    def of(chunks: Sequence[Chunk], kept: Sequence[Bools], borders: np.ndarray, most: Sequence[int]) -> DrawnSample:
        """Draw from the documents that are kept. `most` is the number of words of each side."""
        chunk = np.concatenate([np.full(int(keep.sum()), n) for n, keep in enumerate(kept)])
        entries = np.concatenate([part.index[keep] for part, keep in zip(chunks, kept, strict=True)])
        order = np.lexsort((entries["key"], entries["draw"]))
        chunk, entries = chunk[order], entries[order]
        side, words = np.searchsorted(borders, entries["draw"], "right"), entries["words"].astype(np.int64)
        fits = np.zeros(len(order), bool)
        for number, limit in enumerate(most):
            rows = side == number
            fits[rows] = np.cumsum(words[rows]) <= limit
        counts = np.stack([entries[name] for name in ("sentences", "words", "characters", "bytes")], 1)
        left_out = int((~fits).sum())
        return DrawnSample(
            chunk[fits], entries["at"][fits], side[fits], counts[fits], left_out, int(words[~fits].sum())
        )
