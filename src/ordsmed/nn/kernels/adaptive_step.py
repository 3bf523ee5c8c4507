"""Adagrad's step of a large table by one kernel, which passes over rows that learned nothing.

A gradient of 0 changes neither weight nor sum where nothing decays, so of the rows that no batch has seen only the
gradient is read: for a table of words that is nearly all. The plain form is torch's, seven passes over everything.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor as Value  # pointers and numbers alike

from ordsmed.nn.kernels.trial import Shapes

TILE = 1_024


@triton.jit
def _step(
    weights: Value, sums: Value, slopes: Value, count: Value, rate: Value, epsilon: Value, decay: Value,
    SKIPS: tl.constexpr, SIZE: tl.constexpr,
) -> None:  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    slope = tl.load(slopes + at, at < count, 0)
    learned = tl.max((slope != 0).to(tl.int32), 0)
    if learned > 0 or not SKIPS:
        weight = tl.load(weights + at, at < count, 0)
        slope += decay * weight
        seen = tl.load(sums + at, at < count, 1) + slope * slope
        tl.store(sums + at, seen, at < count)
        tl.store(weights + at, weight - rate * (slope / (tl.sqrt(seen) + epsilon)), at < count)


def step(weights: Tensor, sums: Tensor, slopes: Tensor, rate: float, epsilon: float = 0.0, decay: float = 0.0) -> None:
    """Move fp32 weights and the sums of squares that they have seen, in place; all three lie in one piece."""
    assert weights.is_contiguous(), "weights are read from first to last"
    assert sums.is_contiguous(), "sums are read from first to last"
    assert slopes.is_contiguous(), "slopes are read from first to last"
    count = weights.numel()
    if count:
        grid = (triton.cdiv(count, TILE),)
        _step[grid](weights, sums, slopes, count, rate, float(epsilon), float(decay), decay == 0, TILE)


def plain(weights: Tensor, sums: Tensor, slopes: Tensor, rate: float, epsilon: float = 0.0, decay: float = 0.0) -> None:
    """The same by torch's kernels."""
    slopes = slopes + decay * weights
    sums.addcmul_(slopes, slopes)
    weights.addcdiv_(slopes, sums.sqrt().add_(epsilon), value=-rate)


def check(device: torch.device, shapes: Shapes) -> str:
    """How two rows, of which one learns, come out otherwise than by the plain form; empty where they do not."""
    chance = torch.Generator().manual_seed(0)
    weights, slopes = (torch.randn(2, TILE, generator=chance).to(device) for _ in range(2))
    slopes[0] = 0
    for decay in (0.0, 0.1):
        ours, theirs = ((weights.clone(), torch.ones_like(weights)) for _ in range(2))
        step(*ours, slopes, 0.2, 1e-6, decay)
        plain(*theirs, slopes, 0.2, 1e-6, decay)
        if not all(torch.allclose(one, other, 1e-5, 1e-6) for one, other in zip(ours, theirs, strict=True)):
            return "other weights or sums than torch's"
    return ""


def examples(device: torch.device) -> None:
    """Launches of sizes as they come, for who builds ahead of time."""
    table = torch.empty(2, 2 * TILE, device=device)
    step(table, table, table, 0.2)
    step(table, table, table, 0.2, decay=0.1)
