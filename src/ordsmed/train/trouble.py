"""Trouble: decide what to do about a skipped step, or about weights and validation losses with NaN or Inf."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from ordsmed.base.errors import Trouble
from ordsmed.train.job import Job


class Rewind(Exception):
    """The run returns to its last checkpoint and skips the steps since then."""

    def __init__(self, step: int, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(f"step {step}: {reason}")


def handle_trouble(job: Job, folder: Path, step: int, reason: str) -> None:
    """Record a skipped step in the run's status, or raise `Rewind` or `Trouble`."""
    if job.is_skipped(step):
        return
    if job.recipe.trouble.action != "skip":
        stop_or_rewind(job, folder, step, reason)
    if not job.finite:
        stop_or_rewind(job, folder, step, f"{reason}; the weights contain NaN or Inf, so skipping steps does not help")
    job.skip_steps(folder, step, step, reason)


def stop_or_rewind(job: Job, folder: Path, step: int, reason: str) -> NoReturn:
    """Raise `Rewind` if the recipe says so, else `Trouble`; for problems that skipping cannot solve."""
    if job.recipe.trouble.action == "rewind":
        raise Rewind(step, reason)
    raise Trouble(f"{folder}: step {step}", reason, "finite losses without jumps")
