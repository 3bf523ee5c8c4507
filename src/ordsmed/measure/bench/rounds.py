"""Rounds: steps in blocks, the clock read between blocks alone, so that a GPU may run ahead within each.

steps 1 2 | 3 4 | 5 6 7 | ...      | the device has done all: seconds, joules; what is measured beside has its turn
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ordsmed.measure.bench.energy import Joules
from ordsmed.measure.bench.measured import now
from ordsmed.train.watch import Watch

if TYPE_CHECKING:
    import torch

Turn = Callable[[int], None]  # so many steps of something else


@dataclass(frozen=True)
class Spread:
    """Seconds a step: the median of rounds, the fastest and the slowest of them."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Spread:
        return Spread(float(np.median(seconds)), min(seconds), max(seconds))


@dataclass
class Rounds:
    """Is told every step of the loop, and times blocks of them after those that warm up."""

    device: torch.device
    steps: int
    count: int  # rounds; never more than steps
    warm: int
    joules: Joules
    beside: Turn | None = None
    seconds: list[float] = field(default_factory=list)  # a step, in each round
    others: list[float] = field(default_factory=list)  # the same of what is measured beside
    graphs: Callable[[], int] = int  # that torch has compiled so far
    energies: list[float] = field(default_factory=list)  # of each round
    compiled: list[bool] = field(default_factory=list)  # was anything compiled in this round?

    def __post_init__(self) -> None:
        self.ends = self.warm + np.linspace(0, self.steps, min(self.count, self.steps) + 1).astype(int)
        self.began, self.joules_then, self.graphs_then = 0.0, 0.0, 0

    def each(self, step: int) -> None:
        """A step of the loop is done, as far as the host is concerned."""
        if step not in self.ends:
            return
        ended, joules = now(self.device), self.joules()
        size = int(step - self.ends[len(self.seconds)])
        if size:
            self.seconds.append((ended - self.began) / size)
            self.energies.append(joules - self.joules_then)
            self.compiled.append(self.graphs() > self.graphs_then)
        if self.beside and step < self.ends[-1]:
            ended = self._turn(ended)
            joules = self.joules()
        self.began, self.joules_then, self.graphs_then = ended, joules, self.graphs()

    @property
    def energy(self) -> float:
        """Joules a step."""
        return sum(self.steady(self.energies)) / sum(self.steady(np.diff(self.ends).tolist()))

    def steady(self, values: Sequence[float]) -> list[float]:
        """Those of rounds in which nothing was compiled, which takes seconds once; of all, where each has something."""
        return [value for value, late in zip(values, self.compiled, strict=True) if not late] or list(values)

    def _turn(self, began: float) -> float:
        """As many steps of the other as the next round has, the first time some more that warm it up."""
        assert self.beside
        if not self.seconds:
            self.beside(self.warm)
            began = now(self.device)
        size = int(self.ends[len(self.seconds) + 1] - self.ends[len(self.seconds)])
        self.beside(size)
        ended = now(self.device)
        self.others.append((ended - began) / size)
        return ended


class RowsWatch(Watch):
    """A watch that sums up how long rows were waited for."""

    waited = 0.0

    def at(self, step: int, stage: str) -> None:
        if self.stage == "making rows":
            self.waited += time.monotonic() - self.since
        super().at(step, stage)
