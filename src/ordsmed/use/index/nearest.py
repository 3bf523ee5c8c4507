"""Exact nearest-neighbour search: the rows of a vector file with the largest dot products with the questions.

Each block of rows is converted from 16 to 32 bits in a buffer that fits a core's cache, and multiplied there. This is
exact, faster than products in 16 bits, and needs no memory for the whole file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NUMBERS = 1 << 20  # numbers of a block, at most: in 32 bits they fit a core's cache
SCORES = 1 << 22  # scores that are sorted at once
Best = tuple[Tensor, Tensor]  # scores and row numbers [Q, K]


def nearest(
    vectors: NDArray[Any],
    questions: Tensor,
    most: int,
    numbers: int = NUMBERS,
    scores: int = SCORES,
    allowed: NDArray[np.bool_] | None = None,
) -> Best:
    """Return the scores and numbers of the best `most` rows of questions [Q, D], best first, as [Q, K].

    Of rows with equal scores, the one with the lower number comes first. With `allowed`, only these rows are returned,
    and K is at most their number. Each thread multiplies its own blocks: in one shared product of so small blocks,
    threads would wait for each other.
    """
    count, width = vectors.shape
    block = max(1, numbers // max(width, 1))
    span = max(1, scores // max(len(questions) * block, 1)) * block
    whole, threads = torch.from_numpy(vectors), torch.get_num_threads()
    excluded = None if allowed is None else torch.from_numpy(~allowed)
    most = most if allowed is None else min(most, int(allowed.sum()))

    def best_of(begin: int) -> Best:
        parts = whole[begin : begin + span].split(block)
        buffer = torch.empty(len(parts[0]), width)
        products = torch.cat([questions @ buffer[: len(part)].copy_(part).T for part in parts], 1)
        if excluded is not None:
            products[:, excluded[begin : begin + products.shape[1]]] = -torch.inf
        return _best(products, torch.arange(begin, begin + products.shape[1]), most)

    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            spans = list(pool.map(best_of, range(0, count, span)))
    finally:
        torch.set_num_threads(threads)
    all_scores, rows = (torch.cat(tensors, 1) for tensors in zip(*spans, strict=True))
    order = all_scores.sort(dim=1, descending=True, stable=True).indices[:, :most]
    return all_scores.gather(1, order), rows.gather(1, order)


def _best(scores: Tensor, rows: Tensor, most: int) -> Best:
    """Return the best rows of a span. The sort is stable, so of equal scores the first rows stay."""
    if scores.shape[1] > most:
        edge = scores.topk(most).values[:, -1:]
        chosen = (scores >= edge).any(0).nonzero()[:, 0]
        scores, rows = scores[:, chosen], rows[chosen]
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :most]
    return scores.gather(1, order), rows[order]
