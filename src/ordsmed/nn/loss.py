"""The loss of predicted tokens, in chunks that make their gradient in the forward pass.

    hidden [N, D], table [V, D] -> chunks of scores [n, V] -> sum of weight * cross-entropy

A chunk's scores live only while its loss and gradient are made, so memory does not grow with N and nothing is computed
twice. Scores are summed up in fp32 whatever the precision of the product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_SCORES = 1 << 24  # scores held at a time: 64 MB in fp32
SAFE = 60.0  # e^60 times any vocabulary is far from fp32's largest number


def token_loss(hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor) -> Tensor:
    """Sum over slots of weight * -log softmax(hidden @ table.T + bias)[target]."""
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return _TokenLoss.apply(hidden.flatten(0, -2), table, bias, targets.flatten(), weights.flatten())


def token_hits(hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor) -> Tensor:
    """Sum over slots of weight where the target has the highest score."""
    hidden, targets, weights = hidden.flatten(0, -2), targets.flatten(), weights.flatten()
    hits = hidden.new_zeros((), dtype=torch.float32)
    for rows in _chunks(len(hidden), len(table)):
        best = torch.nn.functional.linear(hidden[rows], table.to(hidden.dtype), bias).argmax(-1)
        hits += ((best == targets[rows]) * weights[rows]).sum()
    return hits


class _TokenLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor
    ) -> Tensor:
        product, loss = table.to(hidden.dtype), hidden.new_zeros((), dtype=torch.float32)
        slopes = _Slopes(hidden, product, bias) if any(ctx.needs_input_grad[:3]) else None
        chunks = _chunks(len(hidden), len(table))
        room = hidden.new_empty((chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
        for rows in chunks:
            scores = _scores(hidden[rows], product, bias, room[: rows.stop - rows.start])
            right = scores.gather(1, targets[rows, None]).squeeze(1)
            top = _shift(scores)
            total = scores.exp_().sum(1)
            loss += (weights[rows] * (total.log() + top - right)).sum()
            if slopes:
                slopes.add(rows, scores, weights[rows] / total)
        if slopes:
            ctx.save_for_backward(*slopes.finish(targets, weights))
        ctx.table_dtype = table.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        # the loss is one number, so its gradient only scales what the forward made; in place, it is used once
        hidden, table, *bias = (made.mul_(upstream[0]) for made in ctx.saved_tensors)
        return hidden, table.to(ctx.table_dtype), bias[0] if bias else None, None, None


class _Slopes:
    """What the loss means for hidden states, table and bias, collected chunk by chunk.

    The slope of a row's scores is weight * (exp(score) / total - onehot). It is never written out: weight / total
    scales the narrow side of each product, and the targets' part is taken off at the end.
    """

    def __init__(self, hidden: Tensor, table: Tensor, bias: Tensor | None) -> None:
        self.hidden, self.table = hidden, table
        self.to_hidden = torch.empty_like(hidden)
        self.to_table = torch.zeros(table.shape if not len(hidden) else (0,), device=table.device)
        self.to_bias = None if bias is None else torch.zeros_like(bias)

    def add(self, rows: slice, shares: Tensor, factor: Tensor) -> None:
        """One chunk: `shares` are exp(scores), `factor` is weight / total."""
        if self.to_bias is not None:
            self.to_bias.addmv_(shares.T, factor)
        shares, factor = shares.to(self.hidden.dtype), factor.to(self.hidden.dtype)[:, None]
        torch.mm(shares, self.table, out=self.to_hidden[rows]).mul_(factor)
        weighted = self.hidden[rows] * factor
        if rows.start == 0:
            self.to_table = (shares.T @ weighted).float()
        elif shares.dtype == torch.float32:
            self.to_table.addmm_(shares.T, weighted)
        else:
            self.to_table += shares.T @ weighted

    def finish(self, targets: Tensor, weights: Tensor) -> list[Tensor]:
        """The targets' part taken off."""
        weight = weights[:, None].to(self.hidden.dtype)
        self.to_hidden -= self.table[targets] * weight
        self.to_table.index_add_(0, targets, (self.hidden * weight).float(), alpha=-1)
        if self.to_bias is None:
            return [self.to_hidden, self.to_table]
        self.to_bias.index_add_(0, targets, weights, alpha=-1)
        return [self.to_hidden, self.to_table, self.to_bias]


def _scores(hidden: Tensor, table: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if hidden.dtype == torch.float32:
        torch.mm(hidden, table.T, out=out)
    else:
        out.copy_(hidden @ table.T)
    return out if bias is None else out.add_(bias)


def _shift(scores: Tensor) -> Tensor:
    """Take each row's highest score off, in place, and return it; where no exp can run over, as nearly always, 0."""
    top = scores.amax(1)
    if scores.device.type == "cpu" and float(top.max()) < SAFE and float(top.min()) > -SAFE:
        return torch.zeros_like(top)  # a pass over all scores saved; elsewhere the look itself would cost more
    scores.sub_(top[:, None])
    return top


def _chunks(rows: int, vocabulary: int) -> list[slice]:
    """Chunks of about equal size."""
    count = max(-(-rows * vocabulary // CHUNK_SCORES), 1)
    size = max(-(-rows // count), 1)
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]
