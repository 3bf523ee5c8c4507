"""Fitting a training to a deadline: time steps of each phase before the first step, and plan as many as fit.

`train/deadline.py` corrects the plan during the run.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.ranks import on_rank0
from ordsmed.base.say import duration, many, say
from ordsmed.data.loader import load
from ordsmed.learn.phases import Phase, total
from ordsmed.train import loop
from ordsmed.train.deadline import COLD, RESERVE, difference, scaled_warmup, table, warn_if_short
from ordsmed.train.job import Job
from ordsmed.train.plan import Plan
from ordsmed.train.training import Training

R = TypeVar("R", bound=Training)

WARM = (2, 12)  # timed steps of a phase after the cold ones, at least and at most
MAX_VALIDATION_SHARE = 0.25  # share of the time for validations, if their number is fixed
TRIAL_SECONDS = 0.5  # seconds that the timed steps of a phase take, within the limits of `WARM`


class TooShort(RecipeError):
    seconds: float = 0.0
    """a deadline that would be long enough"""


def fit(plan: Plan, seconds: float) -> tuple[Training, dict[str, Any]]:
    """Return the recipe of `plan` with every phase shortened by the same factor, so that the run ends within `seconds`.

    The second result is stored in the run's status; the plan is corrected by it during the run.
    """
    recipe, ranks, job = plan.recipe, plan.ranks, plan.build()
    seconds = on_rank0(ranks, lambda: seconds)  # each rank has its own clock, and all need the same plan
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        trials = [_time_steps(job, index, Path(scratch)) for index in range(len(recipe.phases))]
    numbers = [*trials, job.data.validation_seconds(job), time.perf_counter() - start]
    *learning, judging, spent = (ranks.total(torch.tensor(numbers).double()) / ranks.data_world).tolist()
    ending = plan.final_validations * judging
    facts = {"asked": table(recipe.phases), "learning": learning, "judging": judging, "ending": ending}
    left = (seconds - spent) * RESERVE - ending
    recipe = with_affordable_validations(recipe, left, judging)
    every, fixed = recipe.validation_cost(judging)
    left -= fixed
    needed = sum(p.whole_steps * e + p.steps * every for p, e in zip(recipe.phases, learning, strict=True))
    times = f"a step takes {_as_text(learning)} s"
    if needed <= left:
        say(f"deadline in {duration(seconds)}: all of {many(total(recipe.phases), 'step')} fit; {times}")
        return _with_fixed_ramps(recipe), facts
    share = left / needed
    if share <= 0 or any(phase.steps * share < 1 for phase in recipe.phases):
        problem = f"{duration(seconds)} are left, less than timing, validations and one step of every phase take"
        least = spent + (ending + fixed + needed / min(phase.steps for phase in recipe.phases)) / RESERVE
        error = TooShort("--deadline", problem, f"{duration(math.ceil(least))} or more")
        error.seconds = least
        raise error
    fitted = recipe.with_phases([_shortened(phase, share) for phase in recipe.phases])
    change = difference(table(recipe.phases), table(fitted.phases))
    say(f"deadline in {duration(seconds)}: {change}; {times}, {duration(left)} are left for them")
    warn_if_short(total(fitted.phases), total(recipe.phases))
    return fitted, facts


def with_affordable_validations(recipe: R, left: float, judging: float) -> R:
    """Return the recipe with fewer validations if they would take too much of the `left` seconds."""
    if recipe.validation_cost(judging)[1] <= MAX_VALIDATION_SHARE * max(left, 0.0):
        return recipe
    count = int(MAX_VALIDATION_SHARE * max(left, 0.0) / judging)
    say(f"deadline: validations before the last step became {count}; each takes {judging:.2g} s")
    return recipe.with_validations(count)


def _as_text(learning: Sequence[float]) -> str:
    return ", ".join(f"{seconds:.3g}" for seconds in learning)


def _with_fixed_ramps(recipe: R) -> R:
    if not any(phase.batch_ramp for phase in recipe.phases):
        return recipe
    return recipe.with_phases([phase.with_fixed_ramp() for phase in recipe.phases])


def _shortened(phase: Phase, share: float) -> Phase:
    steps = max(1, int(phase.steps * share))
    schedule = dataclasses.replace(phase.schedule, over=math.ceil(phase.schedule.over * share))
    ramp = phase.batch_ramp and dataclasses.replace(phase.batch_ramp, over=float(max(1, int(phase.ramp_steps * share))))
    warmup = scaled_warmup(phase.warmup, share)
    return dataclasses.replace(phase, steps=steps, warmup=warmup, schedule=schedule, batch_ramp=ramp)


def _time_steps(job: Job, index: int, scratch: Path) -> float:
    """Return the median seconds of a step of a phase after the first ones, on networks that are discarded.

    Steps have the full batch even if the batch size grows. All ranks take the same number of steps.
    """
    share, phase = job.share(index), job.phases[index]
    if phase.batch_ramp:
        share = dataclasses.replace(share, sizes=None)
    job.begin_phase(index)
    job.carry(index)
    job.data.renew(job, scratch, index, 0)
    spent = list[float]()
    wanted = COLD + WARM[1]
    for inner, batches in enumerate(
        load(job.rows(index), share, 0, min(wanted, phase.steps), workers=0, device=job.ranks.device)
    ):
        began = time.perf_counter()
        try:
            float(loop.train_step(job, batches, 0.0, index, inner)[1])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise loop.memory_error(job, index, total(job.phases[:index]) + inner + 1, error) from None
        spent.append(time.perf_counter() - began)
        if len(spent) == COLD:
            warm = on_rank0(job.ranks, lambda: min(WARM[1], max(WARM[0], int(TRIAL_SECONDS / max(spent[-1], 1e-9)))))
            wanted = COLD + warm
        if len(spent) >= wanted:
            break
    return statistics.median(spent[COLD:] or spent[-1:])
