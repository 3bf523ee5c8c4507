"""Schedules: the rate's course over a phase, as free functions of the step."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

ROOT_UNIT = 10_000  # steps that a peak without a warm-up counts as, as transformers has it


@dataclass(frozen=True)
class Schedule:
    """What the rate does after its warm-up; `schedule = "cosine"` is short for `{ kind = "cosine" }`."""

    kind: Literal["constant", "linear", "polynomial", "cosine", "wsd", "inverse_sqrt"] = "linear"
    """constant; linear to `end`; (1 - t)^power; half a cosine; stable and then down over the last `decay` (wsd); or one
    over the root of steps, of which the peak has had as many as its warm-up, 10,000 without one (inverse_sqrt)"""
    power: float = 1.0
    """exponent of the polynomial"""
    end: float = 0.0
    """where the rate ends, as a share of its peak"""
    decay: float = 0.2
    """wsd: the share of the course in which the rate goes down"""
    shape: Literal["linear", "sqrt"] = "linear"
    """wsd: down in a line, or as 1 - sqrt(t)"""
    since: Literal["warmup", "jump", "start"] = "warmup"
    """the way down begins at the warm-up's end; jump: it is counted from the first step, so that the rate jumps there
    (Google's BERT, NVIDIA's in PyTorch); start: it is counted and followed from the first step (Google's ELECTRA)"""
    over: int = 0
    """steps of the whole course, warm-up included; 0: those of the phase. A phase of fewer steps cuts it off, in one of
    more the rate stays where it ended; elsewhere lr_decay_iters, total_num_update"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("over",)

    def __post_init__(self) -> None:
        if not 0 <= self.end <= 1:
            raise ValueError(f"end: found {self.end}; wanted a share of the peak, 0 to 1")
        if not 0 < self.power < math.inf:
            raise ValueError(f"power: found {self.power}; wanted a finite number above 0")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay: found {self.decay}; wanted a share of the course, above 0 to 1")
        if self.over < 0:
            raise ValueError(f"over: found {self.over}; wanted a number of steps, or 0 for those of the phase")

    def span(self, steps: int) -> int:
        """Steps of the course in a phase of so many."""
        return self.over or steps


def warmup_steps(warmup: float, steps: int) -> int:
    """1 and more is steps, below 1 a share of the course's."""
    return int(warmup) if warmup >= 1 else round(warmup * steps)


def factor(schedule: Schedule, step: int, steps: int, warmup: float) -> float:
    """The rate at a step (0 is the first) as a share of its peak: up in a line, then down as the schedule says."""
    steps = schedule.span(steps)
    rise = warmup_steps(warmup, steps)
    risen = min((step + 1) / rise, 1.0) if rise else 1.0
    if step < rise and schedule.since != "start":
        return risen
    begun = rise if schedule.since == "warmup" else 0
    if schedule.kind == "inverse_sqrt":
        unit = rise or ROOT_UNIT
        left = math.sqrt(unit / (unit + step - begun))
    else:
        left = _fall(schedule, min((step - begun) / max(steps - begun, 1), 1.0))
    return risen * (schedule.end + (1 - schedule.end) * left)


def _fall(schedule: Schedule, t: float) -> float:
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "cosine":
        return (1 + math.cos(math.pi * t)) / 2
    if schedule.kind == "polynomial":
        return float((1 - t) ** schedule.power)
    if schedule.kind == "linear":
        return 1 - t
    late = max(t - (1 - schedule.decay), 0.0) / schedule.decay
    return 1 - (math.sqrt(late) if schedule.shape == "sqrt" else late)


@dataclass(frozen=True)
class Ramp:
    """A share that changes over the run: `{ start = 0.3, end = 0.15 }`."""

    start: float
    """at the run's first row"""
    end: float
    """at its last"""

    def at(self, progress: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its value where so much of the run is done."""
        return self.start + (self.end - self.start) * progress


def at(value: float | Ramp, progress: NDArray[np.float64]) -> NDArray[np.float64]:
    """A share, or what a ramp makes of it, for every row."""
    return value.at(progress) if isinstance(value, Ramp) else np.full(len(progress), value)


def ends(value: float | Ramp) -> tuple[float, float]:
    """Its smallest and largest value."""
    return (min(value.start, value.end), max(value.start, value.end)) if isinstance(value, Ramp) else (value, value)
