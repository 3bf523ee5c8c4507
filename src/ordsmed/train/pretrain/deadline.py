"""What a pretraining with a deadline begins with: as many steps as fit, by a few that are tried first."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.say import duration, say
from ordsmed.data.loader import load
from ordsmed.learn.phases import Phase, total
from ordsmed.train import loop
from ordsmed.train.deadline import RESERVE, table, warn
from ordsmed.train.job import Job
from ordsmed.train.plan import Plan
from ordsmed.train.pretrain.texts import VALIDATION_ROWS, TextData, validate
from ordsmed.train.training import Training

TRIAL_STEPS = 3


def fit(plan: Plan, seconds: float) -> tuple[Training, dict[str, Any]]:
    """Fewer steps, never more, so that all phases end in time; each phase and its warm-up shrink by the same share.

    Beside the recipe: what the run's status keeps, for the plan to be made again by it.
    """
    recipe, ranks, job = plan.recipe, plan.ranks, plan.build()
    start = time.perf_counter()
    trials = [_trial(job, index) for index in range(len(recipe.phases))]
    judging = _validation_seconds(job)
    numbers = [*(number for trial in trials for number in trial), judging, time.perf_counter() - start]
    *flat, judging, spent = (ranks.total(torch.tensor(numbers).double()) / ranks.data_world).tolist()
    interval, per_step, fastest, slowest = recipe.validation_interval, flat[::3], flat[1::3], flat[2::3]
    every = judging / interval if interval else 0.0
    needed = sum(p.whole_steps * e + p.steps * every for p, e in zip(recipe.phases, per_step, strict=True))
    facts = {"asked": table(recipe.phases), "learning": per_step, "judging": judging}
    left = (seconds - spent) * RESERVE - judging
    if needed <= left:
        return _with_fixed_ramps(recipe), facts
    share = left / needed
    if share <= 0 or any(phase.steps * share < 1 for phase in recipe.phases):
        problem = f"{duration(seconds)} are left, less than trials, the last validation and a step of every phase take"
        least = spent + (judging + needed / min(phase.steps for phase in recipe.phases)) / RESERVE
        raise RecipeError("--deadline", problem, f"{duration(math.ceil(least))} or more for them")
    fitted = recipe.with_phases([_shrunk(phase, share) for phase in recipe.phases])
    steps = [[phase.steps for phase in which.phases] for which in (recipe, fitted)]
    say(
        f"deadline {duration(seconds)}: steps {steps[0]} became {steps[1]}; a step took {min(fastest):.3g} to "
        f"{max(slowest):.3g} s, and the plan is made again as the run goes"
    )
    warn(total(fitted.phases), total(recipe.phases))
    return fitted, facts


def _with_fixed_ramps(recipe: Training) -> Training:
    if not any(phase.batch_ramp for phase in recipe.phases):
        return recipe
    return recipe.with_phases([phase.with_fixed_ramp() for phase in recipe.phases])


def _shrunk(phase: Phase, share: float) -> Phase:
    steps = max(1, int(phase.steps * share))
    warmup = phase.warmup if phase.warmup < 1 else float(int(phase.warmup * share))
    schedule = dataclasses.replace(phase.schedule, over=math.ceil(phase.schedule.over * share))
    ramp = phase.batch_ramp and dataclasses.replace(phase.batch_ramp, over=float(max(1, int(phase.ramp_steps * share))))
    return dataclasses.replace(phase, steps=steps, warmup=warmup, schedule=schedule, batch_ramp=ramp)


def _trial(job: Job, index: int) -> tuple[float, float, float]:
    """Seconds of a step of this phase: the median, the fastest and the slowest of a few, on networks that are thrown
    away after; where the batch grows, of the whole one."""
    rows, share, phase = job.rows(index), job.share(index), job.phases[index]
    if phase.batch_ramp:
        share = dataclasses.replace(share, sizes=None)
    job.begin_phase(index)
    job.carry(index)
    ready = load(rows, share, 0, min(TRIAL_STEPS + 1, phase.steps), workers=0, device=job.ranks.device)
    spent = []
    for inner, batches in enumerate(ready):
        began = time.perf_counter()
        try:
            float(loop.update(job, batches, 0.0, index, inner)[1])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise loop.overfull(job, index, total(job.phases[:index]) + inner + 1, error) from None
        spent.append(time.perf_counter() - began)
    counted = spent[1:] or spent  # the first wakes much
    return sorted(spent)[len(spent) // 2], min(counted), max(counted)


def _validation_seconds(job: Job) -> float:
    texts = job.data
    assert isinstance(texts, TextData)
    rows = texts.validation(len(job.phases) - 1)
    if rows is None:
        return 0.0
    count, began = min(texts.recipe.validation_rows, len(rows)), time.perf_counter()
    some = min(count, VALIDATION_ROWS)
    validate(job, rows, some)
    return (time.perf_counter() - began) * count / some
