"""Choosing: scores of all tokens, a row a text -> the next token of each.

scores -> penalty -> / temperature -> the best k -> the likeliest, or the most typical, that make a share -> draw

Of texts with the same key, the same step draws the same token, whatever else is in the batch: noise is hashed from key,
step and token, and a draw moves only where two tokens are all but equal (learn/sampling.py).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import chance
from ordsmed.learn.sampling import Draw
from ordsmed.use.generation.options import SamplingOptions


def choose(scores: Tensor, how: SamplingOptions, keys: NDArray[np.uint64], steps: NDArray[np.int64]) -> Tensor:
    """The next token of each row, [R, V] -> [R]."""
    if how.greedy:
        return torch.from_numpy(scores.numpy().argmax(1)) if scores.device.type == "cpu" else scores.argmax(1)
    scores = scores / how.temperature
    if how.best and how.best < scores.shape[1]:
        scores = scores.masked_fill(scores < _least_of_best(scores, how.best), -torch.inf)
    if how.share < 1:
        scores = scores.masked_fill(scores < _least_of_share(scores, how.share), -torch.inf)
    if how.typical < 1:
        scores = scores.masked_fill(~_typical(scores, how.typical), -torch.inf)
    shares = (scores - scores.amax(1, keepdim=True)).exp_()
    hashed = torch.from_numpy(chance.bits(keys, steps).view(np.int64)).to(scores.device)
    draw, rows = Draw(hashed, scores.shape[1]), slice(0, len(scores))
    return draw.word(shares, draw.block(draw.sums(shares), rows), rows)[1]


def penalized(scores: Tensor, seen: Tensor, penalty: float | Tensor) -> Tensor:
    """Scores of tokens that a text holds already, divided (below 0: multiplied) by the penalty (Keskar et al. 2019).

    The penalty is that of all rows, or of each, [R, 1].
    """
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


# On a CPU numpy finds, parts and sorts numbers many times faster than torch does.


def _least_of_best(scores: Tensor, count: int) -> Tensor:
    """The score of the last of so many that are the best, [R, 1]."""
    if scores.device.type != "cpu":
        return scores.topk(count, 1).values[:, -1:]
    place = scores.shape[1] - count
    return torch.from_numpy(np.partition(scores.numpy(), place, 1)[:, place, None])


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
    """The score of the token that reaches the share, [R, 1]: it is the last one in, as in transformers and Megatron.

    GPT-2's own code leaves it out.
    """
    if scores.device.type == "cpu":
        ordered = torch.from_numpy(np.sort(scores.numpy(), 1)).flip(1)
    else:
        ordered = scores.sort(1, descending=True).values
    shares = (ordered - ordered.logsumexp(1, keepdim=True)).exp()
    before = shares.cumsum(1) - shares
    return ordered.gather(1, (before < share).sum(1, keepdim=True) - 1)
