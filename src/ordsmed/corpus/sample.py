"""A sample of so many words, in an order that hangs on the texts alone: not on files, machines or processes.

entries of all chunks -> by their draws, a number from each document's words -> each split until it has its words
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
    """Which documents are written, and in which order."""

    chunk: NDArray[np.int64]  # of each document
    at: NDArray[np.uint64]  # the byte where it begins there
    side: NDArray[np.int64]
    counts: NDArray[np.int64]  # its sentences, words, characters and bytes
    documents: int  # that are left out
    words: int  # that these have

    @staticmethod
    def of(chunks: Sequence[Chunk], kept: Sequence[Bools], borders: np.ndarray, most: Sequence[int]) -> DrawnSample:
        """Of documents that are kept; `most`: words of each side."""
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
        left = int((~fits).sum())
        return DrawnSample(chunk[fits], entries["at"][fits], side[fits], counts[fits], left, int(words[~fits].sum()))
