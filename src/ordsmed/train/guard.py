"""The guard: what is done about a loss that is no number, or jumps; the same decision on every rank, before the update.

stop     the run ends with a complaint; what it saved before stands
skip     this step's rows teach nothing
rewind   back to the last checkpoint, and every row from there to the trouble teaches nothing

Weights or a validation with NaN or Inf cannot be skipped: they are gone back from, or end the run. So does a run
most of whose steps taught nothing.
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

LEAST = 0.5  # of a run's steps must have taught something

REMEDY = 'begin anew with a lower rate, a longer warm-up or `layout.precision="fp32"` (--anew, or another `out`)'


@dataclass(frozen=True)
class Guard:
    """What is done about a loss that is no number, or jumps."""

    action: Literal["stop", "skip", "rewind"] = "stop"
    """stop the run; skip the step's rows; or rewind to the last checkpoint and leave out all rows since"""
    spike: float = 0.0
    """a loss of so many times the mean of the last `window` steps counts as trouble too; 0: only what is no number"""
    window: int = 100
    """steps whose mean is compared with"""
    most: int = 100
    """stop when it happened so many times"""

    def __post_init__(self) -> None:
        if self.spike and not 1 < self.spike < math.inf:
            raise ValueError(f"spike: found {self.spike}; wanted more than 1, or 0 for none")
        for name in ("window", "most"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")

    @property
    def watches(self) -> bool:
        """Is every step looked at before its update? Otherwise losses are looked at when they are written."""
        return self.action != "stop" or self.spike > 0


class LossHistory:
    """The last losses, by which a jump is known."""

    def __init__(self, guard: Guard, losses: Iterable[float] = ()) -> None:
        self.guard, self.losses = guard, deque(losses, maxlen=guard.window)

    def trouble(self, loss: float, norm: float) -> str:
        """What is wrong with a step; empty where nothing is. What is right becomes part of the course."""
        if not math.isfinite(loss) or not math.isfinite(norm):
            return f"loss {loss:g}, gradient norm {norm:g}"
        if self.guard.spike and len(self.losses) == self.guard.window:
            mean = sum(self.losses) / len(self.losses)
            if loss > self.guard.spike * mean:
                return f"loss {loss:.4g}, {loss / mean:.2f} times the mean of {many(self.guard.window, 'step')}"
        self.losses.append(loss)
        return ""


def left_out(stretches: Iterable[Mapping[str, Any]]) -> int:
    """How many steps taught nothing; stretches may lie over each other."""
    count = reached = 0
    for first, last in sorted((stretch["first"], stretch["last"]) for stretch in stretches):
        count += max(0, last - max(first - 1, reached))
        reached = max(reached, last)
    return count


def remedy(folder: Path, verb: str, guard: Guard, stands: int | None) -> str:
    """What helps a run in trouble, of which a checkpoint stands, or none (None)."""
    kept = "no checkpoint stands" if stands is None else f"checkpoint of step {stands} stands"
    if guard.action == "rewind":
        return f"{kept}; {REMEDY}"
    place, again = "the start" if stands is None else "there", command(verb, folder, "trouble.action=rewind")
    return f"{kept}: `{again}` goes on from {place} and leaves out what leads here; or {REMEDY}"
