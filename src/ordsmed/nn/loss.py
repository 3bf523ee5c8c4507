"""The loss of predicted tokens, in chunks that make their gradient in the forward pass.

    hidden [N, D], table [V, D] -> chunks of scores [n, V] -> sum of weight * cross-entropy

A chunk's scores live only while its loss and gradient are made, so memory does not grow with N and nothing is computed
twice. Scores are summed up in fp32 whatever the precision of the product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_SCORES = 1 << 23  # scores held at a time: 32 MB in fp32


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
        learning = any(ctx.needs_input_grad[:3])
        loss = hidden.new_zeros((), dtype=torch.float32)
        product = table.to(hidden.dtype)
        grads: list[Tensor | None] = [None, None, None]
        if learning:
            grads = [torch.empty_like(hidden), torch.empty(table.shape, dtype=torch.float32, device=table.device), None]
            grads[2] = None if bias is None else torch.zeros_like(bias)
        chunks = _chunks(len(hidden), len(table))
        room = hidden.new_empty((2, chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
        for rows in chunks:
            scores, shares = room[0, : rows.stop - rows.start], room[1, : rows.stop - rows.start]
            _scores(hidden[rows], product, bias, scores)
            top, best = scores.max(1, keepdim=True)
            torch.softmax(scores, 1, out=shares)
            total = top - shares.gather(1, best).log_()  # log sum exp: the best share is never too small for a log
            right = targets[rows, None]
            loss += (weights[rows] * (total - scores.gather(1, right)).squeeze(1)).sum()
            if learning:
                shares.scatter_add_(1, right, shares.new_full((1, 1), -1.0).expand_as(right))
                _collect(grads, shares, rows, hidden, product, weights)
        ctx.save_for_backward(*(g for g in grads if g is not None))
        ctx.has_bias, ctx.table_dtype = bias is not None, table.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        # the scores' sum is scalar, so its gradient only scales what the forward made; in place, it is used once
        hidden, table, *bias = ctx.saved_tensors
        scale = upstream[0]
        table = table.mul_(scale).to(ctx.table_dtype)
        return hidden.mul_(scale), table, bias[0].mul_(scale) if ctx.has_bias else None, None, None


def _scores(hidden: Tensor, table: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if hidden.dtype == torch.float32:
        torch.mm(hidden, table.T, out=out)
    else:
        out.copy_(hidden @ table.T)
    if bias is not None:
        out.add_(bias)


def _collect(
    grads: list[Tensor | None], slope: Tensor, rows: slice, hidden: Tensor, table: Tensor, weights: Tensor
) -> None:
    """Add what one chunk's slope (scores' gradient before weights) means for hidden states, table and bias."""
    to_hidden, to_table, to_bias = grads
    weight = weights[rows].to(hidden.dtype)
    if to_bias is not None:
        to_bias.addmv_(slope.T, weights[rows])
    slope = slope.to(hidden.dtype)
    assert to_hidden is not None
    assert to_table is not None
    torch.mm(slope, table, out=to_hidden[rows]).mul_(weight[:, None])
    weighted = hidden[rows] * weight[:, None]
    if hidden.dtype != to_table.dtype:
        product = slope.T @ weighted
        to_table.copy_(product) if rows.start == 0 else to_table.add_(product)
    elif rows.start == 0:
        torch.mm(slope.T, weighted, out=to_table)
    else:
        to_table.addmm_(slope.T, weighted)


def _chunks(rows: int, vocabulary: int) -> list[slice]:
    """Chunks of about equal size."""
    count = max(-(-rows * vocabulary // CHUNK_SCORES), 1)
    size = max(-(-rows // count), 1)
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]
