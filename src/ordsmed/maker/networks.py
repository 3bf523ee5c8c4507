"""Which network a time and a text allow: of each rung of a ladder its loss is foreseen, and the best is taken.

    loss = E + A / weights^a + B / tokens^b       tokens: those that are read, where repeated ones count for less

The form is that of Hoffmann et al. (2022), with repetition as Muennighoff et al. (2023) count it; its numbers are for
small networks and short trainings (docs/log has the runs they come from).
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
MOST_WEIGHTS = 7.0  # without embeddings, for each token of the text; with more none was measured
FADING = 0.25  # of a family's most passes: after so many one more is worth a third of the first
BACKWARD = 3.0  # a step's operations beside those forward
ROOMY = 2.0  # weights a token of text up to which all of a family's passes pay
SMALLEST_STEP = 2**10  # tokens of a step, at least
REPEATED = 4.0  # passes from which on a network needs dropout
MANY = 8_192  # pieces of a vocabulary that is large for `of_many`


@dataclass(frozen=True)
class FamilyPlan:
    """How a kind of model is made: what families.toml says of it."""

    purposes: list[str]
    passes: float
    scored: float
    model: Table
    objective: Table
    optimizer: Table
    tokenizer: Table
    of_many: Table = field(default_factory=dict)
    crowding: float = 0.0  # how fast passes fall with the weights a token of text
    least: int = 0  # steps of `SMALLEST_STEP` tokens that a network needs to learn anything
    repeated: Table = field(default_factory=dict)  # settings of a network that reads its text many times
    ladder: list[Table] = field(default_factory=list)
    rate: float = 1.0
    length: int = 0
    reads: int = 1  # times the length of a row in training, that it can read


@functools.cache
def families() -> dict[str, FamilyPlan]:
    """All of them, by name."""
    path = Path(__file__).with_name("families.toml")
    return {
        name: settings.decode(FamilyPlan, table, f"{path.name}: {name}") for name, table in settings.read(path).items()
    }


def usual(purpose: str) -> str:
    """The family for a purpose."""
    return next(name for name, family in families().items() if purpose in family.purposes)


def like(model: ModelSettings) -> FamilyPlan:
    """The family that a model belongs to, or the nearest: one that sees as much of a text."""
    known = [family for family in families().values() if family.model["kind"] == menu.kind_of(model)]
    causal = model.capabilities.causal
    return (known or [families()[usual("write" if causal else "fill")]])[0]


@dataclass(frozen=True)
class Rung:
    """A network, and how much it can read in the time."""

    model: ModelSettings
    table: Table  # of the recipe
    weights: int  # without embeddings
    operations: float  # a token of training
    tokens: float = 0.0  # that it reads in the time
    loss: float = math.inf  # foreseen, to be compared with other rungs alone


def rungs(family: FamilyPlan, vocabulary: int, length: int) -> list[Rung]:
    """The networks of a family, from small to large."""
    usual_sizes = [{"width": width, "layers": layers, "heads": width // 64} for width, layers in LADDER]
    tables = [{**family.model, **sizes, "positions": length * family.reads} for sizes in family.ladder or usual_sizes]
    return [rung(_model(table), table, vocabulary, family.scored, length) for table in tables]


def _model(table: Table) -> ModelSettings:
    """The network that a table means; `positions` is taken out of it where the family has none."""
    chosen = menu.load("models", table["kind"])
    if "positions" not in {line.name for line in menu.lines(chosen.__module__)}:
        table.pop("positions")
    model: ModelSettings = settings.decode(chosen, {k: v for k, v in table.items() if k != "kind"}, "model")
    return model


def rung(model: ModelSettings, table: Mapping[str, Any], vocabulary: int, scored: float, length: int) -> Rung:
    """That of a network."""
    forward = model.flops(length)
    return Rung(model, dict(table), int(forward / 2), BACKWARD * (forward + 2.0 * table["width"] * vocabulary * scored))


def best(ladder: list[Rung], operations: float, unique: float, passes: float) -> Rung:
    """The network with the least foreseen loss after so many operations; none that is large beside the text."""
    fitting = [rung for rung in ladder if rung.weights <= MOST_WEIGHTS * unique] or ladder[:1]
    return min((foreseen(rung, operations, unique, passes) for rung in fitting), key=lambda rung: rung.loss)


def most_passes(rung: Rung, unique: float, family: FamilyPlan) -> float:
    """Return after how many passes a new network of this size overfits so many tokens of text, by measurements.

    docs/log has the runs they come from (29 November 2026).
    """
    roomy = min(1.0, ROOMY * unique / rung.weights) ** family.crowding
    return max(family.passes * roomy, family.least * SMALLEST_STEP / unique)


def foreseen(rung: Rung, operations: float, unique: float, passes: float) -> Rung:
    """What it reads with so many operations, and the loss that comes of it."""
    tokens = min(operations / rung.operations, passes * unique)
    return replace(rung, tokens=tokens, loss=A / rung.weights**ALPHA + B / worth(tokens, unique, passes) ** BETA)


def worth(tokens: float, unique: float, passes: float) -> float:
    """How many different tokens so many are worth, where the same ones come again; `passes`: the most that pay."""
    repeated, fades = max(tokens / unique - 1, 0.0), FADING * passes
    return min(tokens, unique) + unique * fades * (1 - math.exp(-repeated / fades))
