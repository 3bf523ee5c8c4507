"""Learning rate schedules, as functions of the step of a phase."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

ROOT_UNIT = 10_000  # warm-up steps that inverse_sqrt assumes without a warm-up, as in transformers


@dataclass(frozen=True)
class Schedule:
    """The learning rate after its warm-up; `schedule = "cosine"` is short for `{ kind = "cosine" }`."""

    kind: Literal["constant", "linear", "polynomial", "cosine", "restarts", "wsd", "inverse_sqrt"] = "linear"
    """linear to `end`; polynomial: (1 - t)^power; cosine: half a period, or `cycles` periods; restarts: `cycles` half
    periods of a cosine, each from the peak; wsd: constant, then falling over the last `decay`; inverse_sqrt:
    sqrt(warmup / step), with 10,000 in place of a warm-up of 0"""
    power: float = 1.0
    """exponent of the polynomial"""
    end: float = 0.0
    """final rate, as a share of the peak"""
    decay: float = 0.2
    """wsd: share of the schedule in which the rate falls"""
    shape: Literal["linear", "sqrt", "cosine"] = "linear"
    """wsd: how the rate falls: linearly, as 1 - sqrt(t), or as a cosine with `cycles`"""
    since: Literal["warmup", "jump", "start"] = "warmup"
    """when the rate starts to fall: at the end of the warm-up; jump: there too, but counted from the first step, so
    that the rate drops there (Google's BERT, NVIDIA's in PyTorch); start: at the first step (Google's ELECTRA)"""
    over: int = 0
    """steps of the schedule, with the warm-up; 0: those of the phase. A shorter phase cuts the schedule off; in a
    longer one the rate stays at its final value; elsewhere lr_decay_iters, total_num_update"""

    cycles: float = 0.0
    """periods of a cosine (0: half a period); restarts: number of falls (0: one); elsewhere num_cycles"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("over", "cycles")

    def __post_init__(self) -> None:
        if not 0 <= self.end <= 1:
            raise ValueError(f"end: found {self.end}; wanted a share of the peak, 0 to 1")
        if not 0 < self.power < math.inf:
            raise ValueError(f"power: found {self.power}; wanted a finite number above 0")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay: found {self.decay}; wanted a share of the schedule, above 0 to 1")
        if self.over < 0:
            raise ValueError(f"over: found {self.over}; wanted a number of steps, or 0 for those of the phase")
        if not 0 <= self.cycles < math.inf:
            raise ValueError(f"cycles: found {self.cycles}; wanted a finite number above 0, or 0 for the default")
        if self.cycles and not (self.kind in ("cosine", "restarts") or (self.kind, self.shape) == ("wsd", "cosine")):
            raise ValueError(f"cycles: found {self.cycles:g} with kind {self.kind}; wanted a cosine, or 0")

    def span(self, steps: int) -> int:
        return self.over or steps


def warmup_steps(warmup: float, steps: int) -> int:
    """Return the steps of a warm-up; `warmup` below 1 is a share of `steps`, otherwise a number of steps."""
    return int(warmup) if warmup >= 1 else round(warmup * steps)


def factor(schedule: Schedule, step: int, steps: int, warmup: float) -> float:
    """Return the rate at a step (0 is the first) as a share of the peak: a linear warm-up, then the schedule."""
    steps = schedule.span(steps)
    rise = warmup_steps(warmup, steps)
    risen = min((step + 1) / rise, 1.0) if rise else 1.0
    if step < rise and schedule.since != "start":
        return risen
    begin = rise if schedule.since == "warmup" else 0
    if schedule.kind == "inverse_sqrt":
        unit = rise or ROOT_UNIT
        left = math.sqrt(unit / (unit + step - begin))
    else:
        left = _fall(schedule, min((step - begin) / max(steps - begin, 1), 1.0))
    return risen * (schedule.end + (1 - schedule.end) * left)


def _fall(schedule: Schedule, t: float) -> float:
    """Return the rate after the share `t` of the schedule, on a scale from 0 at `end` to 1 at the peak."""
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "cosine":
        return _cosine(schedule, t)
    if schedule.kind == "restarts":
        return (1 + math.cos(math.pi * ((schedule.cycles or 1) * t % 1))) / 2 if t < 1 else 0.0
    if schedule.kind == "polynomial":
        return float((1 - t) ** schedule.power)
    if schedule.kind == "linear":
        return 1 - t
    late = max(t - (1 - schedule.decay), 0.0) / schedule.decay
    if schedule.shape == "cosine":
        return _cosine(schedule, late)
    return 1 - (math.sqrt(late) if schedule.shape == "sqrt" else late)


def _cosine(schedule: Schedule, t: float) -> float:
    return (1 + math.cos(2 * math.pi * (schedule.cycles or 0.5) * t)) / 2


@dataclass(frozen=True)
class Ramp:
    """A share that changes linearly over the run: `{ start = 0.3, end = 0.15 }`."""

    start: float
    """value at the run's first row"""
    end: float
    """value at its last row"""

    def at(self, progress: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.start + (self.end - self.start) * progress


def at(value: float | Ramp, progress: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value at each progress (0 to 1) of the run."""
    return value.at(progress) if isinstance(value, Ramp) else np.full(len(progress), value)


def ends(value: float | Ramp) -> tuple[float, float]:
    return (min(value.start, value.end), max(value.start, value.end)) if isinstance(value, Ramp) else (value, value)
