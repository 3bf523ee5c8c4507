"""Saving: when checkpoints are written, and what is done when a disk is full, slow or read-only."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch

from ordsmed.base.errors import RunError
from ordsmed.base.ranks import first_alone
from ordsmed.base.say import say
from ordsmed.learn.phases import locate
from ordsmed.train.checkpoint import Writer
from ordsmed.train.job import Job

TRIES = 3  # checkpoints in a row that may fail before the run stops
SLOW = 10.0  # seconds of waiting for a disk that are told


class Saving:
    """The checkpoints of one run."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder, self.failures = job, folder / "checkpoints", 0
        token = first_alone(job.ranks, lambda: str(time.time_ns()))
        layout = job.recipe.layout
        self.writer = Writer(self.folder, job.ranks, job.recipe.keep, background=layout.background, token=token)
        first_alone(job.ranks, self.writer.clean)

    def save(self, step: int, *, final: bool = False) -> None:
        """Begin to write a checkpoint when the one before stands; the last of a run is waited for."""
        self.settle()
        job = self.job
        self.writer.save(step, job.objective, job.optimizer, job.parts, job.parallel.rows, **facts(job, step))
        if final:
            self.settle(final=True)

    def settle(self, *, final: bool = False) -> None:
        """Wait for what is being written. A failure is told; the third in a row, or the last one's, ends the run."""
        began = time.monotonic()
        ranks = self.job.ranks
        self.writer.wait_for_own()
        failed = self._failed()
        outcome = first_alone(ranks, lambda: self._outcome(failed))
        self.writer.forget()
        if time.monotonic() - began > SLOW:
            say(f"waited {time.monotonic() - began:.0f} s for the disk of {self.folder}")
        if not outcome:
            self.failures = 0
            return
        self.failures += 1
        error = RunError(*outcome)
        if final or self.failures >= TRIES:
            raise error
        say(f"{error}; the run goes on, the next checkpoint is tried as usual")

    def _failed(self) -> list[int]:
        """The ranks that could not write their part; each leaves word why."""
        ranks, complaint = self.job.ranks, self.writer.complaint
        failed = torch.zeros(ranks.world)
        failed[ranks.rank] = float(complaint is not None)
        if ranks.world > 1:
            if complaint:
                ranks.store.set(f"unwritten/{ranks.rank}", json.dumps(complaint))
            torch.distributed.all_reduce(failed)
        return failed.nonzero().flatten().tolist()

    def _outcome(self, failed: list[int]) -> list[str] | None:
        """For the first rank: what went wrong with the checkpoint, in the words of the one it happened to."""
        found = self.writer.outcome(give_up=bool(failed))
        if found and failed and failed[0]:
            return list(json.loads(self.job.ranks.store.get(f"unwritten/{failed[0]}")))
        return found


def facts(job: Job, step: int) -> dict[str, Any]:
    """What a checkpoint's state.json says beside its step."""
    index, inner = locate(job.phases, step)
    return {
        "phase": index + 1, "phase_step": inner, "phases": len(job.phases) + job.phases_before,
        "tokenizer": job.tokenizer.fingerprint, **circumstances(job), "scaler": job.scaler.state(),
        "course": list(job.course.losses) if job.recipe.trouble.spike else [],
    }  # fmt: skip


def circumstances(job: Job) -> dict[str, Any]:
    """What must be equal for a run to go on with the same bits."""
    layout = job.recipe.layout
    return {
        "torch": torch.__version__, "threads": torch.get_num_threads(), "device": job.ranks.device.type,
        "mesh": list(job.ranks.shape), "micro": [job.share(i).micro for i in range(len(job.phases))],
        "precision": layout.precision,
    }  # fmt: skip
