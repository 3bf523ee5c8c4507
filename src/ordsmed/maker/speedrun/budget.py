"""Numbers of steps from a budget: as many steps as the operations allow, and no more.

The phases of a recipe keep their proportions; only the ratios of its numbers of steps count.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many, operations
from ordsmed.learn.phases import Phase
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.pace import expected_seconds
from ordsmed.train.plan import planned
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining


@dataclass(frozen=True)
class Budgeted:
    recipe: Pretraining
    flops: float
    tokens: int
    seconds: float  # expected on this machine

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.recipe.phase)

    def passes(self, tokens: float) -> float:
        return self.tokens / tokens


def budgeted(table: settings.Table, location: str, data: str, tokenizer: Tokenizer, flops: float) -> Budgeted:
    """Return a recipe with as many steps as `flops` operations allow, on data of this tokenizer."""
    recipe = settings.decode(Pretraining, {**table, "data": data}, location)
    if late := next((n for n, phase in enumerate(recipe.phase, 1) if not phase.steps), 0):
        raise RecipeError(f"{location}: phase[{late}].epochs", "found", "steps, which the budget then multiplies")
    plan = PretrainingPlan.of(recipe, planned(recipe.layout))
    plan = dataclasses.replace(plan, tokenizer=tokenizer)
    costs = [plan.flops(index) for index in range(len(recipe.phase))]
    recipe = recipe.with_phases(filled(recipe.phase, costs, flops))
    used = sum(cost * phase.steps for cost, phase in zip(costs, recipe.phase, strict=True))
    tokens = sum(phase.rows * plan.row_length(index) for index, phase in enumerate(recipe.phase))
    seconds = expected_seconds(plan.by(recipe))
    return Budgeted(recipe, used, tokens, seconds)


def filled(phases: Sequence[Phase], costs: Sequence[float], flops: float) -> tuple[Phase, ...]:
    """Return phases with as many steps as `flops` operations allow; phases that fit already are not changed."""
    used = sum(cost * phase.steps for cost, phase in zip(costs, phases, strict=True))
    if used <= flops < used + min(costs):
        return tuple(phases)
    steps = [int(phase.steps * flops / used) for phase in phases]
    if min(steps) < 1:
        problem = f"{operations(flops)} are less than a step of each phase, {operations(sum(costs))}"
        raise RecipeError("--budget", problem, "", "a larger budget, or a smaller network or batch")
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):  # use the operations left by rounding down
        left = flops - sum(cost * count for cost, count in zip(costs, steps, strict=True))
        steps[index] += max(0, int(left / costs[index]))
    return tuple(_with_steps(phase, count) for phase, count in zip(phases, steps, strict=True))


def _with_steps(phase: Phase, steps: int) -> Phase:
    share = steps / phase.steps
    schedule = dataclasses.replace(phase.schedule, over=math.ceil(phase.schedule.over * share))
    warmup = phase.warmup if phase.warmup < 1 else float(int(phase.warmup * share))
    return dataclasses.replace(phase, steps=steps, warmup=warmup, schedule=schedule)


def expected_tokenizer(learned: object) -> Tokenizer:
    """Return a placeholder with the sizes of a tokenizer that is not made yet."""
    size, pad = getattr(learned, "size", 0), getattr(learned, "pad", 0)
    expected = SimpleNamespace(vocabulary=size, pad=pad, mask=0, kind=getattr(learned, "learns", kind_of(learned)))
    return cast(Tokenizer, expected)


def line(plan: Budgeted) -> str:
    return f"{many(plan.steps, 'step')}, {plan.tokens / 1e6:,.3g} million tokens, {operations(plan.flops)}"
