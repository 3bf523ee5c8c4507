"""Batch sizes: how many rows each step of a phase has, and which is its first, where the batch grows.

start, start + by, ..., batch     each for as many steps, over the first so many
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchSizes:
    """The sizes one after another; of one that no step has nothing is left."""

    steps: tuple[int, ...]  # the first step of each size
    rows: tuple[int, ...]  # the first row of that step
    sizes: tuple[int, ...]  # rows of a step

    @staticmethod
    def of(batch: int, start: int = 0, by: int = 0, over: int = 0) -> BatchSizes:
        """From `start` by `by` at a time to `batch`, which the step `over` is the first to have; 0: all have it."""
        if not over or not start:
            return BatchSizes((0,), (0,), (batch,))
        count, steps, rows, sizes = (batch - start) // by, [0], [0], [start]
        for number in range(1, count + 1):
            step = -(-number * over // count)
            rows.append(rows[-1] + (step - steps[-1]) * sizes[-1])
            steps.append(step)
            sizes.append(start + number * by)
        return BatchSizes(tuple(steps), tuple(rows), tuple(sizes))

    def at(self, step: int) -> tuple[int, int]:
        """The first row of a step, and how many it has."""
        part = bisect_right(self.steps, step) - 1
        return self.rows[part] + (step - self.steps[part]) * self.sizes[part], self.sizes[part]

    def step_of(self, row: int) -> int:
        """The step that has a row."""
        part = bisect_right(self.rows, row) - 1
        return self.steps[part] + (row - self.rows[part]) // self.sizes[part]
