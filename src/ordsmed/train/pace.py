"""Pace: estimate how long a training takes on this machine, before its first step.

FLOPs of its steps and validations / FLOP/s of its last run here, else a share of the peak of large products
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ordsmed.base import settings
from ordsmed.base.keys import value_key
from ordsmed.base.machine.speed import cache_figure, cached_figure, key_of, measured_peak
from ordsmed.base.say import duration, many, say
from ordsmed.train.callbacks import Callback
from ordsmed.train.plan import Plan
from ordsmed.train.precision_trial import expected_precision

SHARE = {"cpu": 0.55, "cuda": 0.35}  # share of the measured peak that trainings usually reach
WARM, TIMED = 3, 10.0  # steps that are not timed, then seconds that are
TOLERANCE = 1.5  # print if it takes this many times longer or shorter than estimated


def expected_seconds(plan: Plan) -> float:
    """Return the estimated seconds of all steps and validations; 0 if unknown."""
    return sum(plan.work()) / flops_per_second(plan)


def flops_per_second(plan: Plan) -> float:
    """Return the speed of all processes, measured by an earlier run here, or else a share of the peak."""
    if known := cached_figure(_key(plan)):
        return known
    device = plan.ranks.device
    return SHARE[device.type] * measured_peak(device, expected_precision(plan)) * plan.ranks.world


def _key(plan: Plan) -> str:
    recipe, layout = plan.recipe, plan.recipe.layout
    learned = settings.plain({"model": plan.network, "optimizer": recipe.optimizer, **recipe.learned()})
    rows = [[phase.length, phase.batch] for phase in recipe.phases]
    options = [rows, expected_precision(plan), layout.micro, layout.recompute, layout.compile, *plan.ranks.shape]
    return key_of(plan.ranks.device, f"FLOP/s of steps {value_key([learned, options], 16)}")


class SpeedMeter(Callback):
    """Measures the speed of the first steps for later estimates, and reports a wrong estimate."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.steps, self.seconds, self.flops = plan, 0, 0.0, 0.0

    def metrics(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            if "seconds" in line and self.seconds < TIMED:
                self.steps += 1
                if self.steps > WARM:
                    self.seconds += line["seconds"]
                    index = line["phase"] - 1
                    self.flops += self.plan.flops(index) * line["rows"] / self.plan.recipe.phases[index].batch
                if self.seconds >= TIMED:
                    self._report()

    def _report(self) -> None:
        speed, before = self.flops / self.seconds, self.plan.seconds
        cache_figure(_key(self.plan), speed)
        seconds = sum(self.plan.work()) / speed
        if before and not 1 / TOLERANCE < seconds / before < TOLERANCE:
            say(f"by {many(self.steps, 'step')}: about {duration(seconds)} in all, not {duration(before)}")
