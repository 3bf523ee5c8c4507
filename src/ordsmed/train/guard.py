"""The guard: how a run handles losses that are not finite or jump. All ranks decide the same, before the update.

stop     end the run with an error; its checkpoints stay
skip     do not train on the rows of this step
rewind   return to the last checkpoint and skip all rows from there to the bad step

Weights or a validation loss with NaN or Inf cannot be skipped: the run rewinds or ends. A run also ends if most of its
steps were skipped.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ordsmed.base.say import many
from ordsmed.base.screen import command

MIN_TRAINED = 0.5  # least share of a run's steps that must not be skipped

REMEDY = 'start again (--anew or another `out`) with a lower rate, a longer warm-up or `layout.precision="fp32"`'


@dataclass(frozen=True)
class Guard:
    action: Literal["stop", "skip", "rewind"] = "stop"
    """stop the run; skip the rows of this step; or rewind to the last checkpoint and skip all rows since then"""
    spike: float = 0.0
    """a loss above this many times the mean loss of the last `window` steps also counts as trouble; 0: only NaN and Inf
    do"""
    window: int = 100
    """number of steps in that mean"""
    most: int = 100
    """stop the run after this many skips"""

    def __post_init__(self) -> None:
        if self.spike and not 1 < self.spike < math.inf:
            raise ValueError(f"spike: found {self.spike}; wanted more than 1, or 0 for none")
        for name in ("window", "most"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")

    @property
    def watches(self) -> bool:
        """Whether every step is checked before its update; otherwise losses are checked when they are written."""
        return self.action != "stop" or self.spike > 0


class LossHistory:
    def __init__(self, guard: Guard, losses: Iterable[float] = ()) -> None:
        self.guard, self.losses = guard, deque(losses, maxlen=guard.window)

    def trouble(self, loss: float, norm: float) -> str:
        """Return what is wrong with a step, or an empty string. A good loss is added to the history."""
        if not math.isfinite(loss) or not math.isfinite(norm):
            return f"loss {loss:g}, gradient norm {norm:g}"
        if self.guard.spike and len(self.losses) == self.guard.window:
            mean = sum(self.losses) / len(self.losses)
            if loss > self.guard.spike * mean:
                return f"loss {loss:.4g}, {loss / mean:.2f} times the mean of {many(self.guard.window, 'step')}"
        self.losses.append(loss)
        return ""


def count_skipped(stretches: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of skipped steps; ranges may overlap."""
    count = reached = 0
    for first, last in sorted((stretch["first"], stretch["last"]) for stretch in stretches):
        count += max(0, last - max(first - 1, reached))
        reached = max(reached, last)
    return count


def remedy(folder: Path, verb: str, guard: Guard, last_step: int | None) -> str:
    """Return the advice for a failed run; `last_step` is the step of its last checkpoint."""
    kept = "no checkpoint is complete" if last_step is None else f"the last complete one is of step {last_step}"
    if guard.action == "rewind":
        return f"{kept}; {REMEDY}"
    location, again = "the start" if last_step is None else "there", command(verb, folder, "trouble.action=rewind")
    return f"{kept}: `{again}` resumes from {location} and skips the steps that led here; or {REMEDY}"
