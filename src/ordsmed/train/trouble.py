"""Trouble: what is done about a step that taught nothing, or about weights and validations with NaN or Inf."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from ordsmed.base.errors import Trouble
from ordsmed.train.job import Job


class Rewind(Exception):
    """The run goes back to its last checkpoint; what lies between teaches nothing."""

    def __init__(self, step: int, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(f"step {step}: {reason}")


def handle_trouble(job: Job, folder: Path, step: int, reason: str) -> None:
    """A step that taught nothing: in the run's record, once; or the way back to the last checkpoint."""
    if job.leaves_out(step):
        return
    if job.recipe.trouble.action != "skip":
        stop_or_rewind(job, folder, step, reason)
    if not job.finite:
        stop_or_rewind(job, folder, step, f"{reason}; the weights contain NaN or Inf, so skipping rows does not help")
    job.leave_out(folder, step, step, reason)


def stop_or_rewind(job: Job, folder: Path, step: int, reason: str) -> NoReturn:
    """What cannot be skipped: back to the last checkpoint if the recipe says so, else the end."""
    if job.recipe.trouble.action == "rewind":
        raise Rewind(step, reason)
    raise Trouble(f"{folder}: step {step}", reason, "finite numbers and no jump")
