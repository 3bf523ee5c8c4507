"""Nearest: the rows of a file of vectors that have the largest products with questions; every row is looked at.

A block of rows in 16 bits becomes 32 bits in a buffer that a core's cache holds, is multiplied and forgotten: that is
faster than products in 16 bits, needs no memory for the vectors, and is exact.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NUMBERS = 1 << 20  # of a block, at most: in 32 bits they stay in a core's cache
SCORES = 1 << 22  # that are looked through at once
Best = tuple[Tensor, Tensor]  # scores and row numbers [Q, K]


def nearest(
    vectors: NDArray[Any],
    questions: Tensor,
    most: int,
    numbers: int = NUMBERS,
    scores: int = SCORES,
    allowed: NDArray[np.bool_] | None = None,
) -> Best:
    """Of questions [Q, D] the best rows, best first; of equal ones the first; K: so many, or all that are `allowed`.

    Each thread looks at rows of its own: blocks are so small that threads in one product would wait for each other.
    """
    count, width = vectors.shape
    block = max(1, numbers // max(width, 1))
    span = max(1, scores // max(len(questions) * block, 1)) * block
    whole, threads = torch.from_numpy(vectors), torch.get_num_threads()
    shut = None if allowed is None else torch.from_numpy(~allowed)
    most = most if allowed is None else min(most, int(allowed.sum()))

    def best_of(begin: int) -> Best:
        parts = whole[begin : begin + span].split(block)
        buffer = torch.empty(len(parts[0]), width)
        products = torch.cat([questions @ buffer[: len(part)].copy_(part).T for part in parts], 1)
        if shut is not None:
            products[:, shut[begin : begin + products.shape[1]]] = -torch.inf
        return _best(products, torch.arange(begin, begin + products.shape[1]), most)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            spans = list(pool.map(best_of, range(0, count, span)))
    finally:
        torch.set_num_threads(threads)
    every, rows = (torch.cat(tensors, 1) for tensors in zip(*spans, strict=True))
    order = every.sort(dim=1, descending=True, stable=True).indices[:, :most]
    return every.gather(1, order), rows.gather(1, order)


def _best(scores: Tensor, rows: Tensor, most: int) -> Best:
    """The best of a span; sorting is stable, so that of equal ones the first stay."""
    if scores.shape[1] > most:
        edge = scores.topk(most).values[:, -1:]
        chosen = (scores >= edge).any(0).nonzero()[:, 0]
        scores, rows = scores[:, chosen], rows[chosen]
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :most]
    return scores.gather(1, order), rows[order]
