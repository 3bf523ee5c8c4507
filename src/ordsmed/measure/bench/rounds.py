"""Rounds: blocks of steps; the clock is read only between blocks, so that a GPU can run ahead within a block.

steps 1 2 | 3 4 | 5 6 7 | ...      | = wait for the device, read seconds and joules, run the reference's steps
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ordsmed.measure.bench.energy import Joules
from ordsmed.measure.bench.measurement import now
from ordsmed.train.watch import Watch

if TYPE_CHECKING:
    import torch

RunSteps = Callable[[int], None]  # runs this many steps of the reference


@dataclass(frozen=True)
class Spread:
    """Seconds per step: median, fastest and slowest round."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Spread:
        return Spread(float(np.median(seconds)), min(seconds), max(seconds))


@dataclass
class Rounds:
    """Times blocks of steps of the training loop, after the warm-up steps."""

    device: torch.device
    steps: int
    count: int  # number of rounds, at most `steps` are used
    warm: int  # warm-up steps
    joules: Joules
    reference: RunSteps | None = None  # reference that runs between rounds
    seconds: list[float] = field(default_factory=list)  # per step, of each round
    reference_seconds: list[float] = field(default_factory=list)  # the same for the reference
    graphs: Callable[[], int] = int  # number of graphs compiled so far
    energies: list[float] = field(default_factory=list)  # joules of each round
    compiled: list[bool] = field(default_factory=list)  # for each round: was anything compiled?

    def __post_init__(self) -> None:
        self.ends = self.warm + np.linspace(0, self.steps, min(self.count, self.steps) + 1).astype(int)
        self.began, self.joules_then, self.graphs_then = 0.0, 0.0, 0

    def end_of_step(self, step: int) -> None:
        """Record that the host has finished step `step` of the loop."""
        if step not in self.ends:
            return
        ended, joules = now(self.device), self.joules()
        size = int(step - self.ends[len(self.seconds)])
        if size:
            self.seconds.append((ended - self.began) / size)
            self.energies.append(joules - self.joules_then)
            self.compiled.append(self.graphs() > self.graphs_then)
        if self.reference and step < self.ends[-1]:
            ended = self._run_reference(ended)
            joules = self.joules()
        self.began, self.joules_then, self.graphs_then = ended, joules, self.graphs()

    @property
    def energy(self) -> float:
        return sum(self.steady(self.energies)) / sum(self.steady(np.diff(self.ends).tolist()))

    def steady(self, values: Sequence[float]) -> list[float]:
        """Return the values of rounds in which nothing was compiled, or all values if there is no such round."""
        return [value for value, late in zip(values, self.compiled, strict=True) if not late] or list(values)

    def _run_reference(self, began: float) -> float:
        assert self.reference
        if not self.seconds:
            self.reference(self.warm)
            began = now(self.device)
        size = int(self.ends[len(self.seconds) + 1] - self.ends[len(self.seconds)])
        self.reference(size)
        ended = now(self.device)
        self.reference_seconds.append((ended - began) / size)
        return ended


class RowWaits(Watch):
    waited = 0.0

    def at(self, step: int, stage: str) -> None:
        if self.stage == "making rows":
            self.waited += time.monotonic() - self.since
        super().at(step, stage)
