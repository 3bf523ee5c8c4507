"""Saving: when a run writes checkpoints, and how it handles full, slow or read-only disks."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import snapshots
from ordsmed.base.errors import RunError
from ordsmed.base.machine.devices import name_of
from ordsmed.base.ranks import RANK0_TIMEOUT, on_rank0
from ordsmed.base.say import say
from ordsmed.learn.phases import locate
from ordsmed.nn.kernels import switch
from ordsmed.train.checkpoint import CheckpointWriter, steps
from ordsmed.train.job import Job

TRIES = 3  # checkpoints in a row that may fail before the run stops
SLOW = 10.0  # longer waits for a disk, in seconds, are reported


class Saving:
    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.failures, self.count = job, folder / "checkpoints", 0, 0
        token = on_rank0(job.ranks, lambda: str(time.time_ns()))
        layout = job.recipe.layout
        write = functools.partial(CheckpointWriter, background=layout.background, writers=layout.writers)
        self.writer = write(self.folder, job.ranks, job.recipe.keep, token=token, revision=self._is_permanent)
        on_rank0(job.ranks, lambda: snapshots.clean(self.folder))
        self.can_write = on_rank0(job.ranks, lambda: bool(steps(self.folder)))

    def save(self, step: int, *, final: bool = False) -> None:
        """Start writing a checkpoint once the previous one is complete; wait for the run's first and last ones."""
        self.wait()
        job = self.job
        self.writer.save(step, job.objective, job.optimizer, job.parts, job.parallel.rows, **facts(job, step))
        if final or not self.can_write:
            self.wait(final=final)

    def save_now(self, step: int) -> None:
        """Save a checkpoint of `step` unless there is one, and wait for it."""
        self.wait(final=True)
        if step and not on_rank0(self.job.ranks, lambda: step in steps(self.folder)):
            self.save(step, final=True)

    def wait(self, *, final: bool = False) -> None:
        """Wait for the checkpoint being written, and report a failure.

        The run ends at the third failure in a row and if its last checkpoint fails. It also ends if its first
        checkpoint fails, unless `layout.unsaved` is set.
        """
        began = time.monotonic()
        ranks = self.job.ranks
        self.writer.wait_for_part()
        if ranks.world > 1:  # the store waits as long as a disk takes; a collective would time out
            ranks.store.set(f"part/{self.count}/{ranks.rank}", json.dumps(self.writer.complaint))
        outcome = on_rank0(ranks, self._outcome)
        self.count += 1
        written = self.writer.thread is not None and not outcome
        self.writer.reset()
        if time.monotonic() - began > SLOW:
            say(f"waited {time.monotonic() - began:.0f} s for the disk of {self.folder}")
        if not outcome:
            self.failures, self.can_write = 0, self.can_write or written
            return
        self.failures += 1
        error = RunError(*outcome)
        if final or self.failures >= TRIES:
            raise error
        if not self.can_write and not self.job.recipe.layout.unsaved:
            remedy = f"{error.remedy}; " * bool(error.remedy) + "`layout.unsaved=true` trains without a checkpoint"
            raise RunError(error.place, f"the run's first checkpoint: {error.found}", error.wanted, remedy)
        say(f"{error}; training continues, and the next checkpoint is written as usual")

    def finish_writing(self) -> None:
        """Let the current checkpoint finish. With several ranks, wait for this rank only."""
        if self.job.ranks.world > 1:
            self.writer.wait_for_part()
            return
        with contextlib.suppress(RunError):  # the run ends for another reason
            self.wait()

    def _is_permanent(self, step: int) -> bool:
        recipe, stand = self.job.recipe, steps(self.folder)
        best = recipe.best_of([line for line in self.job.state.validations if line["step"] in stand])
        labelled = bool(snapshots.labels(snapshots.path_of(self.folder, step)))
        return step == best or step in self.job.state.ends or recipe.is_revision(step) or labelled

    def _outcome(self) -> list[str] | None:
        ranks = self.job.ranks
        keys = [f"part/{self.count}/{rank}" for rank in range(ranks.world)] if ranks.world > 1 else []
        if keys:
            ranks.store.wait(keys, RANK0_TIMEOUT)
        complaints = [complaint for key in keys if (complaint := json.loads(ranks.store.get(key)))]
        outcome = self.writer.outcome(give_up=bool(complaints))
        return list(complaints[0]) if outcome and complaints else outcome


def facts(job: Job, step: int) -> dict[str, Any]:
    """Return the contents of state.json except the step and the checksums."""
    index, inner = locate(job.phases, step)
    return {
        "phase": index + 1,
        "phase_step": inner,
        "phases": len(job.phases) + job.phases_before,
        "tokenizer": job.tokenizer.fingerprint,
        **exactness_facts(job),
        "scaler": job.scaler.state(),
        "words": job.state.words,
        "reached": job.state.reached,
        "course": list(job.state.losses.losses) if job.recipe.trouble.spike else [],
    }


def exactness_facts(job: Job) -> dict[str, Any]:
    """Return the facts that must not change if a resumed run is to produce exactly the same bits."""
    layout, device = job.recipe.layout, job.ranks.device
    kernels = [kernel for kernel in switch.KERNELS if switch.runs(kernel, device)]
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": job.ranks.device.type,
        "mesh": list(job.ranks.shape),
        "micro": [job.share(i).micro for i in range(len(job.phases))],
        "precision": f"{layout.precision}, fp8" if layout.fp8 else layout.precision,
        "machine": name_of(device),
        "kernels": kernels,
        "triton": metadata.version("triton") if kernels else "none",
    }
