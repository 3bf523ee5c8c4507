"""Nearest texts by the vectors of their tokens: MaxSim of questions with every text, a block of texts at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.learn.embedding.maxsim import TokenRows, maxsim

TOGETHER = 64  # questions, at most
NUMBER, PRODUCT = 12, 12  # bytes that one takes, with what is made of it


def nearest_tokens(
    texts: TokenRows, questions: TokenRows, most: int, memory: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Of each question the best texts, best first, of equal ones the first: their numbers and scores.

    `memory`: bytes that are held beside questions and what was found, if one pair of texts takes no more.
    """
    block_numbers, products = memory // 4 // NUMBER, memory // 2 // PRODUCT
    together = min(max(1, products // (questions.longest * texts.longest)), TOGETHER)
    blocks = texts.blocks(block_numbers)
    for begin in range(0, len(questions), together):
        some = questions.padded(np.arange(begin, min(begin + together, len(questions))))
        scores, numbers = torch.zeros(len(some), 0), torch.zeros(len(some), 0, dtype=torch.int64)
        for block in blocks:
            scores = torch.cat([scores, maxsim(some, texts.padded(block), products)], 1)
            numbers = torch.cat([numbers, torch.from_numpy(block).expand(len(some), -1)], 1)
            order = scores.sort(dim=1, descending=True, stable=True).indices[:, :most]
            scores, numbers = scores.gather(1, order), numbers.gather(1, order)
        yield from zip(numbers.numpy(), scores.numpy(), strict=True)
