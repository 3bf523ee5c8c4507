"""Choice of a network size: predict the loss of each size in a ladder, and take the best.

    loss = E + A / weights^a + B / tokens^b       tokens read; repeated ones count less

The formula is that of Hoffmann et al. (2022), with repetition as in Muennighoff et al. (2023). Its constants are for
small networks and short trainings; docs/log has the runs they were fitted to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ordsmed.base import menu, settings
from ordsmed.nn.model import ModelSettings

Table = dict[str, Any]
LADDER = ((64, 1), (128, 2), (192, 3), (256, 4), (384, 6), (512, 8), (640, 10), (768, 12), (1024, 24))
A, ALPHA, B, BETA = 40.6, 0.34, 1700.0, 0.5
MOST_WEIGHTS = 7.0  # most weights without embeddings per token of text; larger ones were not measured
FADING = 0.25  # share of a family's most passes, after which another pass is worth a third of the first
BACKWARD = 3.0  # operations of a training step, as a multiple of the forward pass
ROOMY = 2.0  # weights per token of text up to which all passes of a family are useful
SMALLEST_STEP = 2**10  # least tokens of a step
REPEATED = 4.0  # passes above which a network needs dropout
MANY = 8_192  # vocabularies of at least this many pieces use `of_many`


@dataclass(frozen=True)
class FamilyPlan:
    """How a family of models is made, as set in families.toml."""

    purposes: list[str]
    passes: float
    scored: float
    model: Table
    objective: Table
    optimizer: Table
    tokenizer: Table
    of_many: Table = field(default_factory=dict)
    crowding: float = 0.0  # how fast useful passes fall with the weights per token of text
    least: int = 0  # steps of `SMALLEST_STEP` tokens that a network needs at least
    repeated: Table = field(default_factory=dict)  # settings of a network that repeats its text often
    ladder: list[Table] = field(default_factory=list)
    learning_rate: float = 1.0
    length: int = 0
    reads: int = 1  # the longest row that the network can read, as a multiple of the row length in training


@functools.cache
def families() -> dict[str, FamilyPlan]:
    path = Path(__file__).with_name("families.toml")
    return {
        name: settings.decode(FamilyPlan, table, f"{path.name}: {name}") for name, table in settings.read(path).items()
    }


def usual(purpose: str) -> str:
    return next(name for name, family in families().items() if purpose in family.purposes)


def like(model: ModelSettings) -> FamilyPlan:
    """Return the family of a model, or else the usual family that is causal or bidirectional like the model."""
    known = [family for family in families().values() if family.model["kind"] == menu.kind_of(model)]
    causal = model.capabilities.causal
    return (known or [families()[usual("write" if causal else "fill")]])[0]


@dataclass(frozen=True)
class NetworkSize:
    """A network of the ladder, and the tokens it can read in the time."""

    model: ModelSettings
    table: Table  # table of the recipe
    weights: int  # without embeddings
    operations: float  # per token of training
    tokens: float = 0.0  # tokens read in the time
    loss: float = math.inf  # predicted; only comparable between network_sizes


def network_sizes(family: FamilyPlan, vocabulary: int, length: int) -> list[NetworkSize]:
    usual_sizes = [{"width": width, "layers": layers, "heads": width // 64} for width, layers in LADDER]
    tables = [{**family.model, **sizes, "positions": length * family.reads} for sizes in family.ladder or usual_sizes]
    return [network_size(_model(table), table, vocabulary, family.scored, length) for table in tables]


def _model(table: Table) -> ModelSettings:
    """Return the network of a table; `positions` is removed from the table if the family does not have it."""
    chosen = menu.load("models", table["kind"])
    if "positions" not in {line.name for line in menu.lines(chosen.__module__)}:
        table.pop("positions")
    model: ModelSettings = settings.decode(chosen, {k: v for k, v in table.items() if k != "kind"}, "model")
    return model


def network_size(
    model: ModelSettings, table: Mapping[str, Any], vocabulary: int, scored: float, length: int
) -> NetworkSize:
    forward = model.flops(length)
    return NetworkSize(
        model, dict(table), int(forward / 2), BACKWARD * (forward + 2.0 * table["width"] * vocabulary * scored)
    )


def best(ladder: list[NetworkSize], operations: float, unique: float, passes: float) -> NetworkSize:
    """Return the network with the lowest predicted loss, among those not too large for the text."""
    fitting = [size for size in ladder if size.weights <= MOST_WEIGHTS * unique] or ladder[:1]
    return min((with_predicted_loss(size, operations, unique, passes) for size in fitting), key=lambda size: size.loss)


def max_passes(size: NetworkSize, unique: float, family: FamilyPlan) -> float:
    """Return the passes over `unique` tokens after which a new network of this size overfits, by measurements.

    docs/log has the runs they come from (29 November 2026).
    """
    roomy = min(1.0, ROOMY * unique / size.weights) ** family.crowding
    return max(family.passes * roomy, family.least * SMALLEST_STEP / unique)


def with_predicted_loss(size: NetworkSize, operations: float, unique: float, passes: float) -> NetworkSize:
    """Return the size with the tokens it reads within `operations`, and its predicted loss."""
    tokens = min(operations / size.operations, passes * unique)
    return replace(
        size, tokens=tokens, loss=A / size.weights**ALPHA + B / distinct_tokens(tokens, unique, passes) ** BETA
    )


def distinct_tokens(tokens: float, unique: float, passes: float) -> float:
    """Return the number of distinct tokens that `tokens`, repetitions included, are worth.

    `passes` is the largest number of useful passes.
    """
    repeated, fades = max(tokens / unique - 1, 0.0), FADING * passes
    return min(tokens, unique) + unique * fades * (1 - math.exp(-repeated / fades))
