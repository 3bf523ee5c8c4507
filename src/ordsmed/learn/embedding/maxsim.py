"""MaxSim: the sum, over the tokens of a question, of the similarity to the nearest token of a text.

    questions [Q, A, W], texts [M, B, W]  ->  scores [Q, M]          a row of zeros is padding

It is the score of ColBERT (Khattab and Zaharia 2020). A few texts are compared at a time, to limit memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.data.pieces import Ints
from ordsmed.data.windows import run

AT_ONCE = 1 << 24  # most products of tokens in memory
NUMBERS = 1 << 22  # most numbers of vectors that are read at a time


@dataclass(frozen=True)
class TokenRows:
    """The vectors of all tokens of many texts, end to end."""

    vectors: NDArray[Any]  # [N, W], in 16 or 32 bits
    starts: Ints  # [texts + 1]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def padded(self, texts: Ints) -> Tensor:
        """Return the vectors of some texts, [M, B, W] in 32 bits, padded with zeros."""
        sizes = self.starts[texts + 1] - self.starts[texts]
        rows = np.zeros((len(texts), max(int(sizes.max(initial=1)), 1), self.vectors.shape[1]), np.float32)
        inside, position = run(sizes), np.repeat(np.arange(len(texts)), sizes)
        rows[position, inside] = self.vectors[self.starts[texts][position] + inside]
        return torch.from_numpy(rows)

    @property
    def longest(self) -> int:
        return int(np.diff(self.starts).max(initial=1))

    def blocks(self, numbers: int = 0) -> list[tuple[int, int]]:
        """Return the first text and the end of each block of texts; a block has about `numbers` numbers."""
        size = max(1, (numbers or NUMBERS) // (self.longest * self.vectors.shape[1]))
        return [(begin, min(begin + size, len(self))) for begin in range(0, len(self), size)]


def maxsim_with_all(questions: Tensor, texts: TokenRows) -> Tensor:
    """Return the scores of some questions and every text, [Q, texts]."""
    together = max(1, AT_ONCE // (questions.shape[1] * max(NUMBERS // texts.vectors.shape[1], texts.longest)))
    scores = [
        torch.cat([maxsim_of_block(some, texts, *block) for some in questions.split(together)])
        for block in texts.blocks()
    ]
    return torch.cat(scores, 1)


def maxsim_of_block(questions: Tensor, texts: TokenRows, first: int, last: int) -> Tensor:
    """Return the scores of questions and texts `first` to `last`, without a gradient and without padding texts."""
    starts = texts.starts[first : last + 1] - texts.starts[first]
    rows = torch.from_numpy(texts.vectors[texts.starts[first] : texts.starts[last]]).float()
    products = questions.flatten(0, 1) @ rows.T
    if not (counted := is_token(rows)).all():
        products[:, ~counted] = -math.inf
    scores = np.full((len(questions), last - first), -np.inf, np.float32)
    filled = np.diff(starts) > 0
    best = np.maximum.reduceat(products.numpy(), starts[:-1][filled], axis=1)
    scores[:, filled] = best.reshape(*questions.shape[:2], -1).sum(1)
    return torch.from_numpy(scores)


def maxsim(questions: Tensor, texts: Tensor) -> Tensor:
    """Return the score of every question and every text, [Q, M]."""
    questions, texts = trimmed(questions), trimmed(texts)
    size = max(1, AT_ONCE // max(questions.shape[0] * questions.shape[1] * texts.shape[1], 1))
    return torch.cat([_all_pairs(questions, part) for part in texts.split(size)], 1)


def maxsim_pairs(questions: Tensor, texts: Tensor) -> Tensor:
    """Return the score of each question and the text at the same index, [N]."""
    questions, texts = trimmed(questions), trimmed(texts)
    size = max(1, AT_ONCE // max(questions.shape[1] * texts.shape[1], 1))
    return torch.cat([_paired(*parts) for parts in zip(questions.split(size), texts.split(size), strict=True)])


def trimmed(vectors: Tensor) -> Tensor:
    """Remove the positions after the last token of all texts."""
    counted = is_token(vectors).any(0).nonzero()
    return vectors[:, : int(counted[-1]) + 1 if len(counted) else 1]


def is_token(vectors: Tensor) -> Tensor:
    """Return whether each vector is a token's: padding is zeros."""
    return vectors.detach().any(-1)


def _all_pairs(questions: Tensor, texts: Tensor) -> Tensor:
    products = questions.flatten(0, 1) @ texts.flatten(0, 1).T
    best = _best(products.view(*questions.shape[:2], *texts.shape[:2]), is_token(texts))
    return best.masked_fill(~is_token(questions)[..., None], 0).sum(1)


def _paired(questions: Tensor, texts: Tensor) -> Tensor:
    best = _best(questions @ texts.transpose(1, 2), is_token(texts)[:, None])
    return best.masked_fill(~is_token(questions), 0).sum(-1)


def _best(products: Tensor, counted: Tensor) -> Tensor:
    return products.masked_fill(~counted, -math.inf).max(-1).values
