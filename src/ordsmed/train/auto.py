"""`--layout auto`: the largest micro-batch that fits, measured by real steps."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import time
from pathlib import Path

import torch

from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.say import say
from ordsmed.data.loader import load
from ordsmed.mesh.layout import Layout
from ordsmed.train import loop
from ordsmed.train.job import Job
from ordsmed.train.plan import Plan

ROOM = 0.9  # of a device's memory may be filled
GAIN = 1.02  # a larger micro-batch must be so much faster on a CPU, where large ones only leave the caches


def largest(plan: Plan) -> Layout:
    """The layout of a plan with the largest micro-batch of each phase that fits; equal on all ranks."""
    recipe, ranks, micros = plan.recipe, plan.ranks, []
    for index, phase in enumerate(recipe.phases):
        job, best, fastest = _built(plan), 0, 0.0
        for micro in divisors(phase.batch // ranks.data_world):
            speed = _tried(job, index, micro, ranks)
            if speed <= 0 or (ranks.device.type == "cpu" and speed < fastest * GAIN):
                break
            say(f"auto: phase {index + 1}, micro {micro}: {speed:,.1f} rows/s a rank")
            best, fastest = micro, speed
        if not best:
            raise RecipeError(
                f"phase[{index + 1}]", f"one row of {phase.length} tokens does not fit in memory", "",
                "use layout.shard, layout.tensor or layout.recompute",
            )  # fmt: skip
        micros.append(best)
        del job
        let_go(ranks)
    say(f"auto: layout.micro = {micros}")
    return dataclasses.replace(recipe.layout, micro=tuple(micros))


def divisors(number: int) -> list[int]:
    """Micro-batches that a share can be cut into, about doubling."""
    kept = [1]
    for n in [n for n in range(2, number + 1) if number % n == 0]:
        if n >= 2 * kept[-1] or n == number:
            kept.append(n)
    return kept


def _built(plan: Plan) -> Job | None:
    """A job to try with, thrown away after; None: not even the weights have room."""
    layout = dataclasses.replace(plan.recipe.layout, micro=0)
    try:
        return plan.by(dataclasses.replace(plan.recipe, layout=layout)).build()
    except torch.OutOfMemoryError:
        return None


def _tried(job: Job | None, index: int, micro: int, ranks: Ranks) -> float:
    """Rows a second of one micro-batch on this rank, the slowest of all; 0 where some rank has no room for it."""
    speed = 0.0
    let_go(ranks)
    with contextlib.suppress(torch.OutOfMemoryError):
        if job and (ranks.device.type == "cuda" or _room_on_cpu()):
            layout = dataclasses.replace(job.recipe.layout, micro=micro)
            speed = speed_of(dataclasses.replace(job, recipe=dataclasses.replace(job.recipe, layout=layout)), index)
    least = torch.tensor(speed)
    if ranks.world > 1:
        torch.distributed.all_reduce(least, op=torch.distributed.ReduceOp.MIN)
    return float(least)


def let_go(ranks: Ranks) -> None:
    """Let go of what was tried before: networks hold themselves by their methods, and a peak of memory stays told."""
    gc.collect()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)


def speed_of(job: Job, index: int, steps: int = 2) -> float:
    """Rows a second of one micro-batch forward and backward with an update; the fastest of all but the first counts."""
    share, rows = job.share(index), job.rows(index)
    single = dataclasses.replace(share, batch=share.micro * share.world)
    spent = []
    for step in range(steps):
        batches = next(load(rows, single, step, step + 1, workers=0, device=job.ranks.device))
        job.objective.begin(int(single.numbers(step, 0)[0]) % job.phases[index].batch, share.micro)
        began = time.perf_counter()
        float(loop.update(job, batches, 0.0, index, step)[1])
        spent.append(time.perf_counter() - began)
    if job.ranks.device.type == "cuda":
        total = torch.cuda.get_device_properties(job.ranks.device).total_memory
        if torch.cuda.max_memory_allocated(job.ranks.device) > ROOM * total:
            return 0.0
    return share.micro / min(spent[1:])


def _room_on_cpu() -> bool:
    """A CPU has no error for too little memory: more than this share in use counts as none left."""
    table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    return int(table["MemAvailable"].split()[0]) > (1 - ROOM) * int(table["MemTotal"].split()[0])
