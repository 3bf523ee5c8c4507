"""A mean of the weights over steps, kept beside the optimizer's moments: saved, split and restored as they are."""

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
    """A mean of equal weights over the end of a run: `{ last = 0.2, every = 50 }`."""

    last: float
    """the share of the run's steps over which it is taken"""
    every: int = 1
    """steps between weights that are in it; those of the last step are"""

    def __post_init__(self) -> None:
        if not 0 < self.last <= 1:
            raise ValueError(f"last: found {self.last}; wanted a share of the steps, above 0 to 1")
        if self.every < 1:
            raise ValueError(f"every: found {self.every}; wanted 1 or more steps")

    def before(self, step: int, steps: int) -> int | None:
        """Of how many weights it is before those of a step (1 is the first) come in; None: they do not."""
        left, all_left = steps - step, max(0, round(self.last * steps) - 1)
        return None if left > all_left or left % self.every else all_left // self.every - left // self.every


def memory_of(average: float | Tail, step: int, steps: int) -> float | None:
    """How much of the mean stays when the weights of a step come in; None: they do not, or there is none."""
    if isinstance(average, Tail):
        before = average.before(step, steps)
        return None if before is None else before / (before + 1)
    return average or None


def follow(optimizer: torch.optim.Optimizer, parts: Sequence[LocalParameter], memory: float | None) -> None:
    """After an update: mean = memory * mean + (1 - memory) * weights; it begins with the first weights it sees."""
    if memory is None:
        return
    fresh = [part for part in parts if KEY not in optimizer.state[part.local]]
    for part in fresh:
        optimizer.state[part.local][KEY] = part.local.detach().clone()
    with torch.no_grad():
        means = [optimizer.state[part.local][KEY] for part in parts]
        torch._foreach_lerp_(means, [part.local.detach() for part in parts], 1 - memory)


@contextlib.contextmanager
def in_place(optimizer: torch.optim.Optimizer, parts: Sequence[LocalParameter]) -> Iterator[None]:
    """The means where the weights are, for the time being."""
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
    """Let the moments and their count of steps begin anew; the mean goes on."""
    for state in optimizer.state.values():
        for key, value in state.items():
            first = optimizer.defaults.get("initial_accumulator_value", 0.0) if key == "sum" else 0.0
            if key != KEY:
                state[key] = torch.full_like(value, first) if isinstance(value, Tensor) else type(value)(0)


def read(checkpoint: Path) -> dict[str, Tensor]:
    """The means in a checkpoint, by the names of the weights; empty where none were kept."""
    stored = Boxes(checkpoint, "optimizer")
    return {key.partition("/")[2]: stored.read(key) for key in stored.stored if key.startswith(f"{KEY}/")}
