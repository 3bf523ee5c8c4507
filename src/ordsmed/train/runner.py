"""The runner: train a plan from the last checkpoint to the end.

It retries with smaller micro-batches when memory is short, and restarts the loop after a rewind or a change of plan.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from ordsmed.base import files, settings, snapshots
from ordsmed.base.ending import Stopped, devices_flag
from ordsmed.base.errors import OrdsmedError, RunError, Trouble, lost_processes
from ordsmed.base.folder import RECIPE
from ordsmed.base.machine.speed import measured_peak, slowdown_in
from ordsmed.base.ranks import on_rank0
from ordsmed.base.run import Run
from ordsmed.base.say import detail, many, on_closed_output, operations, say
from ordsmed.base.screen import command, command_lines
from ordsmed.learn.phases import total
from ordsmed.train import loop
from ordsmed.train.auto import free_memory
from ordsmed.train.callbacks import Replanned
from ordsmed.train.deadline import Deadline, Table, plan_at, planned, table
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pace import SpeedMeter
from ordsmed.train.plan import Plan
from ordsmed.train.results import finish_run, with_remedy
from ordsmed.train.resume import last_checkpoint, prepare_job, restore
from ordsmed.train.saving import Saving
from ordsmed.train.tensorboard import TensorBoard
from ordsmed.train.trouble import Rewind
from ordsmed.train.watch import Watch

T = TypeVar("T")
P = TypeVar("P", bound=Plan)


def run_to_end(plan: Plan, folder: Path, watch: Watch) -> dict[str, Any]:
    """Train from the last complete checkpoint, or the start, to the end."""
    return retry_smaller(plan, folder, lambda fitting: _train_from_last(fitting, folder, watch))


def retry_smaller(plan: P, folder: Path, act: Callable[[P], T]) -> T:
    """Return `act(plan)`; each time it runs out of memory, retry with smaller micro-batches."""
    while True:
        try:
            return act(plan)
        except loop.MicroBatchOutOfMemory as full:
            step, micros = full.step, full.micros
        # not within `except`: until that block ends, the error refers to the tensors of the failed attempt
        free_memory(plan.ranks)
        say(f"{folder}: out of memory at step {step}: the run continues with layout.micro={list(micros)}")
        plan = plan.by(dataclasses.replace(plan.recipe, layout=dataclasses.replace(plan.recipe.layout, micro=micros)))


def _train_from_last(plan: Plan, folder: Path, watch: Watch) -> dict[str, Any]:
    ranks = plan.ranks
    last = last_checkpoint(folder, ranks)
    plan, job, over = prepare_job(plan, folder, Run(folder).status, last)
    recipe = plan.recipe
    start, steps = int(last[1]["step"]) if last else 0, total(job.phases)
    if not over:  # a finished run is not changed
        on_rank0(ranks, lambda: _record_start(folder, job, start))
    if over:
        early = f"stopped early, at step {start} of {steps}, and is"
        say(f"{folder}: {early if start < steps else f'all {steps:,} steps are'} done")
        on_rank0(ranks, lambda: snapshots.clean(folder / "checkpoints"))  # it was killed while writing its last one
        return finish_run(plan, job, folder)
    peak = float(ranks.total(torch.tensor(measured_peak(ranks.device, recipe.layout.precision)))) * ranks.shape[2]
    for line in [plan.subject(), _device_line(job), _folder_line(recipe.verb, folder, last)]:
        say(line)
    for line in [*plan.lines(), *_machine_lines(job, peak)]:
        detail(line)
    if times := slowdown_in(recipe.layout.precision, ranks.device):
        say(f"layout.precision: products in {recipe.layout.precision} take {times:.3g} times as long as in fp32")
    saving = Saving(job, folder)
    if recipe.trouble.action == "rewind" and not last:
        saving.save(0)
    try:
        with lost_processes():
            job = _run_loop(plan, job, folder, start, peak, saving, watch)
    except Stopped as stopped:
        if ranks.first:
            Run(folder).set(state="stopped", step=stopped.step)
        where = (
            f"saved at step {stopped.step} of {total(job.phases)}" if stopped.step else "stopped before its first step"
        )
        with on_closed_output(lambda: None):  # a closed output may be why it stopped; the log is still written
            say("\n".join(command_lines(f"{where}; resume it with", command(recipe.verb, folder, *devices_flag()))))
        raise
    except Trouble as error:
        with contextlib.suppress(RunError):  # the run failed for another reason
            saving.wait()
        raise with_remedy(error, job, folder) from None
    except (OrdsmedError, loop.MicroBatchOutOfMemory):
        saving.finish_writing()
        raise
    return finish_run(plan, job, folder)


def _record_start(folder: Path, job: Job, step: int) -> None:
    """Write recipe, tokenizer and facts of the data, and update the run's status."""
    run_folder, recipe = Run(folder), job.recipe
    files.write_text(folder / "recipe.toml", settings.write(recipe))
    here = {"from": step, "processes": job.ranks.world, "mesh": list(job.ranks.shape)}
    before = [entry for entry in run_folder.status.get("layouts", []) if entry["from"] < step]
    same = before and {**before[-1], "from": step} == here
    if job.began_with:
        run_folder.set(began_with=job.began_with, **job.initial_facts)
    layouts = before if same else [*before, here]
    flops = list(map(job.flops, range(len(job.phases))))  # FLOPs of a step, by phase
    facts = {"data": recipe.stamp(), "phases_before": job.phases_before, "layouts": layouts, "flops": flops}
    run_folder.set(state="running", why=None, threads=job.ranks.threads, **facts)
    job.tokenizer.save(folder / "tokenizer")
    files.write_json(folder / "data.json", job.data.facts())


def _run_loop(plan: Plan, job: Job, folder: Path, start: int, peak: float, saving: Saving, watch: Watch) -> Job:
    """Run the loop, starting it again after a change of plan or a rewind; return the finished job."""
    done = read(folder / "metrics.jsonl") if start else []
    used = sum(line.get("seconds", 0.0) for line in done if line["step"] <= start)
    job.state.deadline = Deadline.of(folder, job.recipe, start, used)
    callbacks = (TensorBoard(), SpeedMeter(plan), *plan.callbacks)
    while True:
        try:
            loop.train(job, folder, start, peak, saving=saving, watch=watch, callbacks=callbacks)
            return job
        except Replanned as new:
            job = saving.job = _replanned(plan, job, folder, new.plan)
            start = new.step
        except Rewind as back:
            saving.wait()
            last = last_checkpoint(folder, job.ranks)
            assert last is not None, "a run that rewinds saves before its first step"
            start = restore(job, *last)
            say(f"resumed from {last[0]}")
            if job.state.deadline:
                plans = job.state.deadline.plans
                job = saving.job = _replanned(plan, job, folder, table(plan_at(job.recipe, plans, start).phases))
            if all(job.is_skipped(step) for step in range(start + 1, back.step + 1)):
                since = f"all steps since the checkpoint of step {start} were skipped already, which did not help"
                raise Trouble(f"{folder}: step {back.step}", f"{back.reason}; {since}") from None
            job.skip_steps(folder, start + 1, back.step, back.reason)


def _replanned(plan: Plan, job: Job, folder: Path, steps: Table) -> Job:
    recipe = planned(job.recipe, steps)
    if job.ranks.first:
        files.write_text(folder / RECIPE, settings.write(recipe))
    data = plan.by(recipe).data
    assert data is not None
    return dataclasses.replace(job, recipe=recipe, data=data)


def _device_line(job: Job) -> str:
    layout = job.recipe.layout
    faster = [name for name in ("compile", "fp8") if getattr(layout, name)] + ["our own kernels"] * bool(job.kernels)
    return f"on {', '.join([_processes(job), layout.precision, *faster])}"


def _folder_line(verb: str, folder: Path, last: tuple[Path, dict[str, Any]] | None) -> str:
    if last:
        return f"resumed from {last[0]}"
    title = f"in {folder}; Ctrl-C saves the run; resume it with"
    return "\n".join(command_lines(title, command(verb, folder, *devices_flag())))


def _processes(job: Job) -> str:
    ranks = job.ranks
    processes = f"{many(ranks.world, 'process')}, each " if ranks.world > 1 else ""
    return f"{processes}{ranks.device.type}, {many(ranks.threads, 'thread')}"


def _machine_lines(job: Job, peak: float) -> list[str]:
    first = f"{_processes(job)}; measured peak of all {operations(peak)}/s"
    return [first, job.precision, *([job.kernels] if job.kernels else [])]
