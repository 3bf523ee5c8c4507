"""`--layout auto`: find the fastest layout that fits in memory by timing real training steps.

It chooses the micro-batch size, the mesh and whether to recompute activations. Micro-batches grow while they fit. If
the recipe leaves the mesh open, replicas are tried before split weights. If it does not set recomputation, both
settings are tried. On a GPU the fastest layout is chosen. On a CPU the first one that fits is chosen: its processes
share one memory and one set of cores, so splitting or recomputing saves memory but never time.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch

from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.machine.memory import is_out_of_memory
from ordsmed.base.ranks import Ranks, init_mesh
from ordsmed.base.say import say
from ordsmed.data.loader import load
from ordsmed.train import loop
from ordsmed.train.job import Job
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.plan import Plan

MEMORY_SHARE = 0.9  # share of a device's memory that may be used
GAIN = 1.02  # on a CPU, a larger micro-batch must be this much faster: large ones only overflow the caches
WAIT = 20.0  # seconds to wait for the other ranks to run out of memory as well

P = TypeVar("P", bound=Plan)

_trials = 0


def choose_layout(plan: P) -> P:
    """Return `plan` with the fastest layout that fits, and its processes in that mesh; equal on all ranks."""
    best, fewest_seconds, first_error, splits_needed = None, float("inf"), None, False
    cuda = plan.ranks.device.type == "cuda"
    for candidate in _candidates(plan):
        layout = candidate.recipe.layout
        if layout.recompute and not plan.recipe.layout.recompute and not splits_needed:
            continue  # the complete share of a rank fits without recomputing
        try:
            layout, seconds = largest_micro_batches(candidate)
        except RecipeError as error:
            first_error, splits_needed = first_error or error, True
            continue
        rows = [phase.unit // candidate.ranks.data_world for phase in candidate.recipe.phases]
        splits_needed = [*layout.micro] != rows  # type: ignore[misc]
        if seconds < fewest_seconds:
            best, fewest_seconds = candidate.by(dataclasses.replace(candidate.recipe, layout=layout)), seconds
        if not cuda:
            break
    if best is None:
        assert first_error
        raise first_error
    say(f"auto: {best.recipe.layout.describe(best.ranks.world)}")
    return best


def _candidates(plan: P) -> Iterator[P]:
    """Yield `plan` with every mesh and recompute setting that the recipe does not set."""
    layout, ranks = plan.recipe.layout, plan.ranks
    shards = [layout.shard]
    if ranks.world > 1 and (layout.replicate, layout.shard, layout.tensor) == (0, 1, 1):
        shards += sorted({ranks.process.local_world, ranks.world} - {1})
    for shard in shards:
        if ranks.world % shard:
            continue
        shape = (ranks.world // shard // layout.tensor, shard, layout.tensor)
        in_mesh = plan if shape == ranks.shape else plan.on(init_mesh(ranks, shape))
        for recompute in sorted({layout.recompute, True}):
            split = dataclasses.replace(layout, shard=shard, recompute=recompute)
            yield in_mesh.by(dataclasses.replace(plan.recipe, layout=split))


def largest_micro_batches(plan: Plan) -> tuple[Layout, float]:
    """Return the layout with the largest micro-batch that fits in each phase, and the seconds that the run takes.

    Raise a `RecipeError` if not even one row of a phase fits.
    """
    recipe, ranks, micros, seconds = plan.recipe, plan.ranks, [], 0.0
    for index, phase in enumerate(recipe.phases):
        job, best, fastest = _build(plan), 0, 0.0
        for micro in divisors(phase.unit // ranks.data_world):
            if best and not _has_memory(micro / best, ranks):
                say(f"auto: phase {index + 1}, micro {micro}: skipped, because a GPU may run out of memory")
                break
            speed = _time_micro_batch(job, index, micro, ranks)
            if speed <= 0 or (ranks.device.type == "cpu" and speed < fastest * GAIN):
                break
            say(f"auto: phase {index + 1}, micro {micro}: {speed:,.1f} rows/s a rank")
            best, fastest = micro, speed
        if best:
            micros.append(best)
            seconds += phase.whole_steps * _step_seconds(job, index, best, fastest, ranks)
        del job  # otherwise it would still use memory while the next layout is built
        free_memory(ranks)
        if not best:
            problem = f"one row of {phase.length} tokens does not fit in memory"
            raise RecipeError(f"phase[{index + 1}]", problem, "", "use layout.shard, layout.tensor or layout.recompute")
    say(f"auto: layout.micro = {micros}")
    return dataclasses.replace(recipe.layout, micro=tuple(micros)), seconds


def divisors(number: int) -> list[int]:
    """Return divisors of `number` to try as micro-batch sizes, each at least twice the one before."""
    chosen = [1]
    for n in [n for n in range(2, number + 1) if number % n == 0]:
        if n >= 2 * chosen[-1] or n == number:
            chosen.append(n)
    return chosen


def _build(plan: Plan) -> Job | None:
    layout = dataclasses.replace(plan.recipe.layout, micro=0)
    try:
        return plan.by(dataclasses.replace(plan.recipe, layout=layout)).build()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _step_seconds(job: Job | None, index: int, micro: int, speed: float, ranks: Ranks) -> float:
    """Return the seconds of a step with several micro-batches, of which only the first includes the update."""
    assert job
    first, times = micro / speed, job.phases[index].batch // (micro * ranks.data_world)
    if times == 1 or ranks.device.type == "cpu":  # on a CPU layouts are not compared
        return first * times
    speed_of_two = _time_micro_batch(job, index, micro, ranks, times=2)
    further = 2 * micro / speed_of_two - first if speed_of_two else first
    return first + (times - 1) * max(further, 0.0)


def _has_memory(times: float, ranks: Ranks) -> bool:
    """Return whether every GPU has memory for `times` the rows tried last, assuming memory grows with the rows.

    A rank that runs out of memory in a step would leave the other ranks waiting in a collective. A single process just
    tries the larger micro-batch.
    """
    if ranks.world == 1 or ranks.device.type != "cuda":
        return True
    allocated, most = torch.cuda.memory_allocated(ranks.device), torch.cuda.max_memory_allocated(ranks.device)
    total = torch.cuda.get_device_properties(ranks.device).total_memory
    return slowest(MEMORY_SHARE * total - allocated - (most - allocated) * times, ranks) >= 0


def _time_micro_batch(job: Job | None, index: int, micro: int, ranks: Ranks, *, times: int = 1) -> float:
    """Return the rows per second of the slowest rank, or 0 if a rank runs out of memory."""
    global _trials
    _trials += 1
    speed = 0.0
    free_memory(ranks)
    ready = job is not None and (ranks.device.type == "cuda" or _has_cpu_memory())
    if not slowest(float(ready), ranks) or job is None:  # agree before any rank waits for the others in a step
        return 0.0
    try:
        layout = dataclasses.replace(job.recipe.layout, micro=micro)
        trial = dataclasses.replace(job, recipe=dataclasses.replace(job.recipe, layout=layout))
        speed = speed_of(trial, index, times=times)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if ranks.world > 1:
            _check_all_out_of_memory(ranks, f"phase {index + 1}, micro {micro}", job.recipe.layout.patience)
    return slowest(speed, ranks)


def _check_all_out_of_memory(ranks: Ranks, stage: str, patience: float) -> None:
    """Raise a `RunError` unless all ranks ran out of memory: the others would wait in a collective."""
    ranks.store.set(f"full/{_trials}/{ranks.rank}", "")
    everybody = [f"full/{_trials}/{rank}" for rank in range(ranks.world)]
    until = time.monotonic() + min(WAIT, patience / 2)
    while not ranks.store.check(everybody):
        if time.monotonic() > until:
            remedy = "name a smaller `layout.micro` instead of `--layout auto`, or split weights with `layout.shard`"
            raise RunError(f"rank {ranks.rank}", f"ran out of memory alone, for {stage}", "", remedy) from None
        time.sleep(0.05)


def slowest(speed: float, ranks: Ranks) -> float:
    minimum = torch.tensor(speed, dtype=torch.float64)
    if ranks.world > 1:
        torch.distributed.all_reduce(minimum, op=torch.distributed.ReduceOp.MIN)
    return float(minimum)


def free_memory(ranks: Ranks) -> None:
    """Free the memory of the previous trial, and reset the peak statistics of the GPU.

    Networks are in reference cycles (they hold their own methods), so the garbage collector has to run.
    """
    gc.collect()
    if ranks.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)


def speed_of(job: Job, index: int, steps: int = 2, *, times: int = 1) -> float:
    """Return the rows per second of this rank in its fastest step after the first; 0 if GPU memory is nearly full."""
    spent = [seconds for seconds, _ in itertools.islice(timed_steps(job, index, times=times), steps)]
    if job.ranks.device.type == "cuda":
        total = torch.cuda.get_device_properties(job.ranks.device).total_memory
        if torch.cuda.max_memory_allocated(job.ranks.device) > MEMORY_SHARE * total:
            return 0.0
    return job.share(index).micro * times / min(spent[1:])


def timed_steps(job: Job, index: int, *, times: int = 1) -> Iterator[tuple[float, float]]:
    """Yield the seconds and the gradient norm of training steps with a learning rate of 0.

    A single process on a CPU measures its own CPU time, because other programs may use the cores meanwhile.
    """
    clock = time.thread_time if job.ranks.device.type == "cpu" and job.ranks.world == 1 else time.perf_counter
    share, rows = job.share(index), job.rows(index)
    single = dataclasses.replace(share, batch=share.micro * share.world * times, sizes=None)
    for step in itertools.count():
        batches = next(load(rows, single, step, step + 1, workers=0, device=job.ranks.device))
        job.objective.begin(int(single.numbers(step, 0)[0]) % job.phases[index].batch, share.micro * times)
        began = clock()
        norm = float(loop.train_step(job, batches, 0.0, index, step)[1])
        yield clock() - began, norm


def _has_cpu_memory() -> bool:
    """Return whether less than `MEMORY_SHARE` of memory is in use, because Linux kills a process without an error."""
    table = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
    return int(table["MemAvailable"].split()[0]) > (1 - MEMORY_SHARE) * int(table["MemTotal"].split()[0])
