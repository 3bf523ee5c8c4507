"""A deadline: steps are fitted once, when a run begins, by the speed that real steps show on its layout."""

from __future__ import annotations

import dataclasses
import time

import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import duration, say
from ordsmed.learn.phases import Phase
from ordsmed.train import loop
from ordsmed.train.job import Job, build
from ordsmed.train.material import JUDGED_ROWS, Texts, judge
from ordsmed.train.recipe import Pretraining

RESERVE = 0.95  # of a deadline is planned; the rest is for the checkpoint at the end and a slower hour
TRIAL_STEPS = 3


def fit(recipe: Pretraining, ranks: Ranks, seconds: float) -> Pretraining:
    """Fewer steps, never more, so that all phases end in time; each phase and its warm-up shrink by the same share."""
    job = build(recipe, ranks)
    start = time.perf_counter()
    needed = sum(phase.steps * _step_seconds(job, index) for index, phase in enumerate(recipe.phase))
    judging = _judge_seconds(job)
    needed, judging, spent = ranks.total(torch.tensor([needed, judging, time.perf_counter() - start]).double()).tolist()
    world = ranks.data_world
    needed, left = needed / world, (seconds - spent / world) * RESERVE - judging / world
    if needed <= left:
        return recipe
    share = left / needed
    if share <= 0 or any(phase.steps * share < 1 for phase in recipe.phase):
        found = f"{duration(seconds)} is less than a step of every phase takes"
        raise RecipeError("--deadline", found, f"more than {duration(needed / min(p.steps for p in recipe.phase))}")
    fitted = dataclasses.replace(recipe, phase=tuple(_shrunk(phase, share) for phase in recipe.phase))
    steps = [[phase.steps for phase in which.phase] for which in (recipe, fitted)]
    say(f"deadline {duration(seconds)}: steps {steps[0]} became {steps[1]}")
    return fitted


def _shrunk(phase: Phase, share: float) -> Phase:
    steps = max(1, int(phase.steps * share))
    warmup = phase.warmup if phase.warmup < 1 else max(float(int(phase.warmup * share)), 0.0)
    return dataclasses.replace(phase, steps=steps, warmup=min(warmup, steps))


def _step_seconds(job: Job, index: int) -> float:
    """Seconds of a step of this phase with what recurs in it, measured on the networks, which are thrown away after."""
    rows, share, phase = job.rows(index), job.share(index), job.phases[index]
    job.carry(index)
    ready = loop.load(rows, share, 0, min(TRIAL_STEPS + 1, phase.steps), workers=0, device=job.ranks.device)
    spent = []
    for inner, batches in enumerate(ready):
        began = time.perf_counter()
        float(loop.update(job, batches, 0.0, index, inner)[1])
        spent.append(time.perf_counter() - began)
    each = sorted(spent)[len(spent) // 2]
    assert isinstance(job.recipe, Pretraining)
    every = job.recipe.validate
    return each + (_judge_seconds(job) / every if every else 0.0)


def _judge_seconds(job: Job) -> float:
    texts = job.material
    assert isinstance(texts, Texts)
    rows = texts.validation(len(job.phases) - 1)
    if rows is None:
        return 0.0
    count, began = min(texts.recipe.validation_rows, len(rows)), time.perf_counter()
    some = min(count, JUDGED_ROWS)
    judge(job, rows, some)
    return (time.perf_counter() - began) * count / some
