"""Search by late interaction: MaxSim between the token vectors of questions and texts, a block of texts at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.learn.embedding import maxsim
from ordsmed.learn.embedding.maxsim import TokenRows

TOGETHER = 64  # questions per batch, at most
NUMBER, PRODUCT = 5, 4  # bytes per number of a text vector and per product, with their temporary copies


def nearest_tokens(
    texts: TokenRows, questions: TokenRows, most: int, memory: int, allowed: NDArray[np.bool_] | None = None
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield the numbers and scores of the best texts of each question, best first.

    Of texts with equal scores, the one with the lower number comes first. `memory` bounds the bytes in use in addition
    to the questions and results, as long as a single pair of texts fits. `allowed` marks the texts that may be
    returned.
    """
    numbers = min(memory // 2 // NUMBER, maxsim.NUMBERS)
    block_tokens = max(numbers // texts.vectors.shape[1], texts.longest)
    most = most if allowed is None else min(most, int(allowed.sum()))
    together = min(max(1, memory // 2 // PRODUCT // (questions.longest * block_tokens)), TOGETHER)
    for begin in range(0, len(questions), together):
        padded = questions.padded(np.arange(begin, min(begin + together, len(questions))))
        scores, positions = torch.zeros(len(padded), 0), torch.zeros(len(padded), 0, dtype=torch.int64)
        for first, last in texts.blocks(numbers):
            block = maxsim.maxsim_of_block(padded, texts, first, last)
            if allowed is not None:
                block[:, torch.from_numpy(~allowed[first:last])] = -torch.inf
            scores = torch.cat([scores, block], 1)
            positions = torch.cat([positions, torch.arange(first, last).expand(len(padded), -1)], 1)
            order = scores.sort(dim=1, descending=True, stable=True).indices[:, :most]
            scores, positions = scores.gather(1, order), positions.gather(1, order)
        yield from zip(positions.numpy(), scores.numpy(), strict=True)
