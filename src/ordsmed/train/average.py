"""Averages of the weights over training steps, stored in the optimizer's state next to the moments.

They are therefore saved, split over ranks and restored like moments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ordsmed.nn.shards import LocalParameter
from ordsmed.weights.boxes import Boxes

KEY = "average"


@dataclass(frozen=True)
class Tail:
    """An average with equal weights over the end of a run: `{ last = 0.2, every = 50 }`."""

    last: float
    """share of the run's steps, at its end, that are averaged"""
    every: int = 1
    """steps between averaged weights; the weights of the last step are always included"""

    def __post_init__(self) -> None:
        if not 0 < self.last <= 1:
            raise ValueError(f"last: found {self.last}; wanted a share of the steps, above 0 to 1")
        if self.every < 1:
            raise ValueError(f"every: found {self.every}; wanted 1 or more steps")

    def before(self, step: int, steps: int) -> int | None:
        """Return how many of the averaged steps come before `step` (from 1), or None if `step` is not averaged."""
        left, all_left = steps - step, max(0, round(self.last * steps) - 1)
        return None if left > all_left or left % self.every else all_left // self.every - left // self.every


def decay_at(average: float | Tail, step: int, steps: int) -> float | None:
    """Return the decay with which the weights of `step` enter the average; None: they do not enter it."""
    if isinstance(average, Tail):
        before = average.before(step, steps)
        return None if before is None else before / (before + 1)
    return average or None


def update(optimizer: torch.optim.Optimizer, parts: Sequence[LocalParameter], decay: float | None) -> None:
    """Update the averages after an optimizer step: average = decay * average + (1 - decay) * weights.

    The first call copies the weights. Nothing happens if `decay` is None.
    """
    if decay is None:
        return
    fresh = [part for part in parts if KEY not in optimizer.state[part.local]]
    for part in fresh:
        optimizer.state[part.local][KEY] = part.local.detach().clone()
    with torch.no_grad():
        means = [optimizer.state[part.local][KEY] for part in parts]
        torch._foreach_lerp_(means, [part.local.detach() for part in parts], 1 - decay)


@contextlib.contextmanager
def averaged_weights(optimizer: torch.optim.Optimizer, parts: Sequence[LocalParameter]) -> Iterator[None]:
    """Replace the weights by their averages inside the `with` block, and restore them afterwards."""
    pairs = [(part.local, optimizer.state[part.local][KEY]) for part in parts if KEY in optimizer.state[part.local]]
    copies = [weight.detach().clone() for weight, _ in pairs]
    with torch.no_grad():
        for weight, mean in pairs:
            weight.copy_(mean)
    try:
        yield
    finally:
        with torch.no_grad():
            for (weight, _), copy in zip(pairs, copies, strict=True):
                weight.copy_(copy)


def forget_moments(optimizer: torch.optim.Optimizer) -> None:
    """Reset the optimizer's moments and step counts to their initial values; keep the averages."""
    for state in optimizer.state.values():
        for key, value in state.items():
            first = optimizer.defaults.get("initial_accumulator_value", 0.0) if key == "sum" else 0.0
            if key != KEY:
                state[key] = torch.full_like(value, first) if isinstance(value, Tensor) else type(value)(0)


def read(checkpoint: Path) -> dict[str, Tensor]:
    stored = Boxes(checkpoint, "optimizer")
    return {key.partition("/")[2]: stored.read(key) for key in stored.stored if key.startswith(f"{KEY}/")}
