"""A running mean of the weights, kept beside the optimizer's moments: saved, split and restored as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ordsmed.nn.shards import LocalParameter
from ordsmed.weights.boxes import Boxes

KEY = "average"


def follow(optimizer: torch.optim.Optimizer, parts: Sequence[LocalParameter], memory: float) -> None:
    """After an update: mean = memory * mean + (1 - memory) * weights; it begins with the first weights it sees."""
    if not memory:
        return
    fresh = [part for part in parts if KEY not in optimizer.state[part.local]]
    for part in fresh:
        optimizer.state[part.local][KEY] = part.local.detach().clone()
    with torch.no_grad():
        means = [optimizer.state[part.local][KEY] for part in parts]
        torch._foreach_lerp_(means, [part.local.detach() for part in parts], 1 - memory)


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
