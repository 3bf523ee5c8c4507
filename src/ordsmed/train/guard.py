"""The guard: what is done about a loss that is no number, or jumps; the same decision on every rank, before the update.

stop     the run ends with a complaint; the last checkpoint stands
skip     this step's rows teach nothing
rewind   back to the last checkpoint, and every row from there to the trouble teaches nothing
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


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


class Course:
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
                return f"loss {loss:.4g}, {loss / mean:.2f} times the mean of {self.guard.window} steps"
        self.losses.append(loss)
        return ""
