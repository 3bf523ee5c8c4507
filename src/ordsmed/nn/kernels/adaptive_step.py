"""Adagrad's step of a large table by one kernel that skips rows without gradient.

Without weight decay, a zero gradient changes neither weight nor sum of squares. For nearly all rows of a word table, a
batch has no gradient, so only the gradient is read. The plain version is torch's, with seven passes over everything.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.nn.kernels.trial import Shapes

TILE = 1_024


@triton.jit
def _step(
    weights: Value,
    sums: Value,
    gradients: Value,
    count: Value,
    rate: Value,
    epsilon: Value,
    decay: Value,
    SKIPS: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    gradient = tl.load(gradients + at, at < count, 0)
    learned = tl.max((gradient != 0).to(tl.int32), 0)
    if learned > 0 or not SKIPS:
        weight = tl.load(weights + at, at < count, 0)
        gradient += decay * weight
        seen = tl.load(sums + at, at < count, 1) + gradient * gradient
        tl.store(sums + at, seen, at < count)
        tl.store(weights + at, weight - rate * (gradient / (tl.sqrt(seen) + epsilon)), at < count)


def step(
    weights: Tensor, sums: Tensor, gradients: Tensor, rate: float, epsilon: float = 0.0, decay: float = 0.0
) -> None:
    """Update contiguous fp32 weights and their sums of squared gradients, in place."""
    assert weights.is_contiguous(), "weights must be contiguous"
    assert sums.is_contiguous(), "sums must be contiguous"
    assert gradients.is_contiguous(), "gradients must be contiguous"
    count = weights.numel()
    if count:
        grid = (triton.cdiv(count, TILE),)
        _step[grid](weights, sums, gradients, count, rate, float(epsilon), float(decay), decay == 0, TILE)


def plain(
    weights: Tensor, sums: Tensor, gradients: Tensor, rate: float, epsilon: float = 0.0, decay: float = 0.0
) -> None:
    gradients = gradients + decay * weights
    sums.addcmul_(gradients, gradients)
    weights.addcdiv_(gradients, sums.sqrt().add_(epsilon), value=-rate)


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare the kernel with `plain` on two rows, one without gradient; return the difference in words, or ""."""
    chance = torch.Generator().manual_seed(0)
    weights, gradients = (torch.randn(2, TILE, generator=chance).to(device) for _ in range(2))
    gradients[0] = 0
    for decay in (0.0, 0.1):
        results, references = ((weights.clone(), torch.ones_like(weights)) for _ in range(2))
        step(*results, gradients, 0.2, 1e-6, decay)
        plain(*references, gradients, 0.2, 1e-6, decay)
        if not all(
            torch.allclose(result, reference, 1e-5, 1e-6) for result, reference in zip(results, references, strict=True)
        ):
            return "other weights or sums than torch's"
    return ""


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    table = torch.empty(2, 2 * TILE, device=device)
    step(table, table, table, 0.2)
    step(table, table, table, 0.2, decay=0.1)
