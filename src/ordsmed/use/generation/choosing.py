"""Choose the next token of each text from the scores of all tokens.

    scores -> penalty -> / temperature -> top k -> top p or typical p -> draw

Texts with the same key draw the same token at the same step, whatever else is in the batch. The noise is hashed from
key, step and token, so a draw changes only where two tokens are almost equally likely (learn/sampling.py).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import chance
from ordsmed.learn.sampling import Draw
from ordsmed.use.generation.options import SamplingOptions


def choose(scores: Tensor, options: SamplingOptions, keys: NDArray[np.uint64], steps: NDArray[np.int64]) -> Tensor:
    """Return the next token of each row, [R, V] -> [R]."""
    if options.greedy:
        return torch.from_numpy(scores.numpy().argmax(1)) if scores.device.type == "cpu" else scores.argmax(1)
    scores = scores / options.temperature
    if options.best and options.best < scores.shape[1]:
        scores = scores.masked_fill(scores < _least_of_best(scores, options.best), -torch.inf)
    if options.share < 1:
        scores = scores.masked_fill(scores < _least_of_share(scores, options.share), -torch.inf)
    if options.typical < 1:
        scores = scores.masked_fill(~_typical(scores, options.typical), -torch.inf)
    shares = (scores - scores.amax(1, keepdim=True)).exp_()
    hashed = torch.from_numpy(chance.bits(keys, steps).view(np.int64)).to(scores.device)
    draw, rows = Draw(hashed, scores.shape[1]), slice(0, len(scores))
    return draw.word(shares, draw.block(draw.sums(shares), rows), rows)[1]


def penalized(scores: Tensor, seen: Tensor, penalty: float | Tensor) -> Tensor:
    """Return scores in which tokens that a text already has are divided (below 0: multiplied) by the penalty.

    This is the repetition penalty of Keskar et al. (2019). `penalty` is one number, or one per row [R, 1].
    """
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


# On a CPU, NumPy takes maxima, partitions and sorts many times faster than PyTorch.


def _least_of_best(scores: Tensor, count: int) -> Tensor:
    if scores.device.type != "cpu":
        return scores.topk(count, 1).values[:, -1:]
    position = scores.shape[1] - count
    return torch.from_numpy(np.partition(scores.numpy(), position, 1)[:, position, None])


def _typical(scores: Tensor, share: float) -> Tensor:
    """Return which tokens make the share, those first whose information is nearest to the expected one [R, V].

    The token that reaches the share is one of them, as in transformers.
    """
    logs = scores.log_softmax(1)
    shares = logs.exp()
    entropy = -(shares * logs).nansum(1, keepdim=True)
    order = (-logs - entropy).abs().argsort(1)
    ordered = shares.gather(1, order)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, order, ordered.cumsum(1) - ordered < share)


def _least_of_share(scores: Tensor, share: float) -> Tensor:
    """Return the score of the token with which each row reaches `share`, [R, 1].

    That token is included, as in transformers and Megatron. The original GPT-2 code excludes it.
    """
    if scores.device.type == "cpu":
        ordered = torch.from_numpy(np.sort(scores.numpy(), 1)).flip(1)
    else:
        ordered = scores.sort(1, descending=True).values
    shares = (ordered - ordered.logsumexp(1, keepdim=True)).exp()
    before = shares.cumsum(1) - shares
    return ordered.gather(1, (before < share).sum(1, keepdim=True) - 1)
