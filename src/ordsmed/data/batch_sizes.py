"""Batch sizes: the number of rows of each step of a phase, and its first row, for batch sizes that grow.

start, start + by, ..., batch     each for the same number of steps
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchSizes:
    """The sequence of batch sizes; steps after the last change keep the last size."""

    steps: tuple[int, ...]  # the first step of each size
    rows: tuple[int, ...]  # the first row of that step
    sizes: tuple[int, ...]  # rows of a step

    @staticmethod
    def of(batch: int, start: int = 0, by: int = 0, over: int = 0) -> BatchSizes:
        """Grow from `start` by `by` rows at a time to `batch`, reached at step `over`; 0: constant size."""
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
        part = bisect_right(self.steps, step) - 1
        return self.rows[part] + (step - self.steps[part]) * self.sizes[part], self.sizes[part]

    def step_of(self, row: int) -> int:
        part = bisect_right(self.rows, row) - 1
        return self.steps[part] + (row - self.rows[part]) // self.sizes[part]
