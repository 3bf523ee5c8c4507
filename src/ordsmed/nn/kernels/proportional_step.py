"""LAMB's step of many tensors by two kernels, one for moments, directions and norms and one for the weights.

Tensors are cut into chunks, one per program; a table of addresses locates them. The plain version (learn/updates.py)
makes about ten passes over everything and launches dozens of kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.nn.kernels.trial import Shapes

CHUNK, TILE = 1 << 15, 1_024


@triton.jit
def _fp32(addresses: Value, location: Value) -> Value:
    return tl.load(addresses + location).to(tl.pointer_type(tl.float32))


@triton.jit
def _find_directions(
    addresses: Value,
    sizes: Value,
    tensors: Value,
    begins: Value,
    factors: Value,
    parts: Value,
    count: Value,
    chunks: Value,
    first_beta: Value,
    second_beta: Value,
    decay: Value,
    SIZE: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Update the moments of one chunk, and store its direction and the sums of squares of direction and weights."""
    chunk = tl.program_id(0)
    which, begin = tl.load(tensors + chunk), tl.load(begins + chunk)
    weights, gradients = _fp32(addresses, which), _fp32(addresses, count + which)
    firsts, seconds = _fp32(addresses, 2 * count + which), _fp32(addresses, 3 * count + which)
    along, size = _fp32(addresses, 4 * count + which), tl.load(sizes + which)
    epsilon, scale = tl.load(factors + which), tl.load(factors + count + which)
    squares, direction_squares = tl.zeros((STEP,), tl.float32), tl.zeros((STEP,), tl.float32)
    for offset in range(0, SIZE, STEP):
        at = begin + offset + tl.arange(0, STEP)
        here = at < size
        weight, gradient = tl.load(weights + at, here, 0), tl.load(gradients + at, here, 0)
        first, second = tl.load(firsts + at, here, 0), tl.load(seconds + at, here, 0)
        first += (gradient - first) * (1 - first_beta)
        second = second * second_beta + gradient * gradient * (1 - second_beta)
        way = first / (tl.sqrt(second) + tl.where(here, epsilon, 1.0)) * scale + decay * weight
        tl.store(firsts + at, first, here)
        tl.store(seconds + at, second, here)
        tl.store(along + at, way, here)
        squares += weight * weight
        direction_squares += way * way
    tl.store(parts + chunk, tl.sum(squares, 0))
    tl.store(parts + chunks + chunk, tl.sum(direction_squares, 0))


@triton.jit(do_not_specialize=["most"])
def _add_up(
    parts: Value, starts: Value, totals: Value, count: Value, chunks: Value, most: Value, SIZE: tl.constexpr
) -> None:
    """Sum up the parts of a tensor's chunks in a fixed order; `most`: the largest number of chunks of a tensor."""
    which, row = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(starts + which), tl.load(starts + which + 1)
    total = tl.zeros((SIZE,), tl.float32)
    for first in range(0, most, SIZE):
        at = start + first + tl.arange(0, SIZE)
        total += tl.load(parts + row * chunks + at, at < end, 0)
    tl.store(totals + row * count + which, tl.sum(total, 0))


@triton.jit
def _update(
    addresses: Value,
    sizes: Value,
    tensors: Value,
    begins: Value,
    rates: Value,
    count: Value,
    SIZE: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    chunk = tl.program_id(0)
    which, begin = tl.load(tensors + chunk), tl.load(begins + chunk)
    weights, along = _fp32(addresses, which), _fp32(addresses, 4 * count + which)
    rate, size = tl.load(rates + which), tl.load(sizes + which)
    for offset in range(0, SIZE, STEP):
        at = begin + offset + tl.arange(0, STEP)
        weight = tl.load(weights + at, at < size, 0) - rate * tl.load(along + at, at < size, 0)
        tl.store(weights + at, weight, at < size)


@functools.lru_cache(maxsize=64)
def _cut(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sizes of tensors, tensor and offset of each chunk, and each tensor's first chunk."""
    cut = [(which, begin) for which, size in enumerate(sizes) for begin in range(0, size, CHUNK)]
    counts = torch.tensor([0, *(triton.cdiv(size, CHUNK) for size in sizes)])
    tables = ([*sizes], [which for which, _ in cut], [begin for _, begin in cut], counts.cumsum(0).tolist())
    first, second, third, fourth = (torch.tensor(table, dtype=torch.int64).to(device) for table in tables)
    return first, second, third, fourth


def _on_device(numbers: list[int] | list[float], device: torch.device) -> Tensor:
    kind = torch.int64 if isinstance(numbers[0], int) else torch.float32
    return torch.tensor(numbers, dtype=kind, pin_memory=device.type == "cuda").to(device, non_blocking=True)


class Step:
    """One step of some tensors: `directions`, then `apply_update` with rates computed from the norms."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor],
        firsts: Sequence[Tensor],
        seconds: Sequence[Tensor],
    ) -> None:
        self.device, self.count = weights[0].device, len(weights)
        self.along = [torch.empty_like(weight) for weight in weights]
        self.tensors = [*weights, *gradients, *firsts, *seconds, *self.along]
        self.addresses = _on_device([tensor.data_ptr() for tensor in self.tensors], self.device)
        self.cut = _cut(tuple(weight.numel() for weight in weights), self.device)

    def directions(
        self, betas: tuple[float, float], epsilons: list[float], scales: list[float], decay: float
    ) -> Tensor:
        """Update the moments and return the squared norms of weights and directions, [2, n].

        A direction is m / (√v + epsilon) * scale + decay * w, with one epsilon and scale per tensor.
        """
        sizes, tensors, begins, starts = self.cut
        chunks = len(tensors)
        parts = torch.empty(2, chunks, device=self.device)
        factors = _on_device([*map(float, epsilons), *map(float, scales)], self.device)
        _find_directions[(chunks,)](
            self.addresses,
            sizes,
            tensors,
            begins,
            factors,
            parts,
            self.count,
            chunks,
            *betas,
            decay,
            CHUNK,
            TILE,
            num_warps=8,
        )
        totals = torch.empty(2, self.count, device=self.device)
        most = max(triton.cdiv(weight.numel(), CHUNK) for weight in self.along)
        _add_up[(self.count, 2)](parts, starts, totals, self.count, chunks, most, TILE)
        return totals

    def apply_update(self, rates: Tensor) -> None:
        sizes, tensors, begins, _ = self.cut
        _update[(len(tensors),)](self.addresses, sizes, tensors, begins, rates.contiguous(), self.count, CHUNK, TILE)


def fits(tensors: Sequence[Tensor]) -> bool:
    """Return whether the kernels support these tensors: fp32, contiguous, not sharded."""
    kinds = (Tensor, torch.nn.Parameter)
    return all(type(t) in kinds and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)


def plain(
    weights: list[Tensor],
    gradients: list[Tensor],
    firsts: list[Tensor],
    seconds: list[Tensor],
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    rate: float,
) -> None:
    """Compute a complete step without bias correction by torch's kernels, tensor by tensor, for `check`."""
    for weight, gradient, first, second in zip(weights, gradients, firsts, seconds, strict=True):
        first.lerp_(gradient, 1 - betas[0])
        second.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        along = first / (second.sqrt() + epsilon) + decay * weight
        weight.sub_(rate * weight.norm() / along.norm() * along)


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare a step of three tensors with `plain`; return the difference in words, or an empty string."""
    chance = torch.Generator().manual_seed(0)
    start = [[torch.rand(n, generator=chance).to(device) for n in (3, 700, 1_500)] for _ in range(4)]
    results, references = ([[tensor.clone() for tensor in tensors] for tensors in start] for _ in range(2))
    step = Step(*results)
    norms, direction_norms = step.directions((0.9, 0.999), [1e-6] * 3, [1.0] * 3, 0.01).sqrt()
    step.apply_update(0.1 * norms / direction_norms)
    plain(references[0], references[1], references[2], references[3], (0.9, 0.999), 1e-6, 0.01, 0.1)
    pairs = zip([*results[0], *results[2], *results[3]], [*references[0], *references[2], *references[3]], strict=True)
    same = all(torch.allclose(result, reference, 1e-4, 1e-6) for result, reference in pairs)
    return "" if same else "other weights than torch's"


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    step = Step(*([torch.empty(1 << 22, device=device), torch.empty(768, device=device)] for _ in range(4)))
    step.apply_update(step.directions((0.9, 0.999), [1e-6] * 2, [1.0] * 2, 0.01)[0])
