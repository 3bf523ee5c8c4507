"""Memory check: compare the least memory a training needs with the memory available, before anything is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import memory
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import many, size
from ordsmed.nn.model import ModelSettings
from ordsmed.nn.weight_shapes import unfilled
from ordsmed.train.training import Training

ABSURD = 10**15  # bytes that no process of any machine has
MANY = 200  # more layers than this are not counted one by one
ROW = 32  # bytes of a token of a row: its id, position, document and target
NUMBER = 4  # bytes of a number


@dataclass(frozen=True)
class RankMemory:
    """The memory that a rank needs for weights, gradients and moments."""

    weights: int  # bytes
    moments: int = 0  # values that the optimizer keeps for each trained weight, averages included
    trained: float = 1.0  # share of the weights that are trained

    @property
    def bytes(self) -> int:
        return int(self.weights * (1 + (1 + self.moments) * self.trained))

    @property
    def lines(self) -> list[str]:
        if not self.weights:
            return []
        weights, learning = size(self.weights), size(self.weights * self.trained * (1 + self.moments))
        if self.trained < 1:
            return [f"memory a rank: weights {weights}, gradients and moments {learning}, and activations"]
        parts = f"weights {weights}, gradients {weights}, moments {size(self.weights * self.moments)}"
        return [f"memory a rank: {parts} = {size(self.bytes)}, and activations"]


Make = Callable[[ModelSettings], nn.Module]


def check(recipe: Training, model: ModelSettings, ranks: Ranks, make: Make, *, here: bool = True) -> None:
    """Raise a `RecipeError` if networks or batches do not fit in memory.

    `make` builds the networks for settings such as `model`. `here`: check against this machine's memory; otherwise only
    against a size that no machine has.
    """
    available = memory_of(ranks) if here else ABSURD
    host = (memory.memory_limit() or ABSURD) // ranks.process.local_world if here else ABSURD
    split = ranks.shape[1] * ranks.shape[2]
    count = parameters(model, make)
    amount = "more parameters than can be counted" if count is None else f"{count:,} parameters"
    needed = ABSURD * split if count is None else NUMBER * count * _copies(recipe)
    if needed // split >= available:
        problem = f"found {amount}, which need {size(needed / split)} of memory with gradients and moments"
        remedy = "make the model smaller, or split it (`layout.shard`)"
        raise RecipeError("model", problem, _there(available, here=here), remedy)
    width = getattr(model, "width", 1) * getattr(model, "layers", 1)
    for number, phase in enumerate(recipe.phases, 1):
        length = phase.length if recipe.verb == "pretrain" else 1  # the length of examples is unknown
        rows_here = -(-phase.batch // ranks.data_world)
        if rows_here * length * ROW >= host:
            takes = f"which need {size(rows_here * length * ROW)} of memory"
            problem = f"found {many(phase.batch, 'row')} of {phase.length:,} tokens, {takes}"
            raise RecipeError(f"phase[{number}].batch", problem, _there(host, here=here))
        micro = recipe.layout.share(phase, number, ranks.device.type, ranks.data_rank, ranks.data_world).micro
        if micro * length * width * NUMBER >= available:
            takes = f"whose activations need {size(micro * length * width * NUMBER)}"
            problem = f"found {many(micro, 'row')} of {phase.length:,} tokens at a time, {takes}"
            raise RecipeError("layout.micro", problem, _there(available, here=here))


def parameters(model: ModelSettings, make: Make) -> int | None:
    """Return the parameter count of networks without allocating them; None: too large to count.

    For very deep networks it is extrapolated from fewer layers.
    """

    def count(layers: int | None) -> int:
        with unfilled():
            objective = make(model if layers is None else dataclasses.replace(model, layers=layers))
        return sum(tensor.numel() for tensor in objective.parameters())

    try:
        if getattr(model, "layers", 1) <= MANY:
            return count(None)
        few, more = count(MANY // 2), count(MANY)
        layers: int = model.layers
        return more + (more - few) * (layers - MANY) // (MANY - MANY // 2)
    except (RuntimeError, TypeError, OverflowError):  # torch counts in 64 bits
        return None


def memory_of(ranks: Ranks) -> int:
    if ranks.device.type == "cuda":
        return int(torch.cuda.get_device_properties(ranks.device).total_memory)
    return (memory.memory_limit() or ABSURD) // ranks.process.local_world


def _copies(recipe: Training) -> int:
    if getattr(recipe, "freeze", None) or getattr(recipe, "adapters", None):
        return 1
    return 2 + int(recipe.optimizer.moments) + bool(recipe.average)


def _there(available: int, *, here: bool) -> str:
    return f"less than the {size(available)} of this machine" if here else f"at most {size(available)}"
