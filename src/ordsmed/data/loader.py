"""The loader: the rows of each micro-batch of each rank, and batches prepared in the background.

    step s, batch b, ranks r of w -> numbers s*b .. s*b+b-1 -> this rank's share -> micro-batches

If the batch size grows, the number of micro-batches grows and their size stays the same. The loader has no state: the
data of a step is a function of its number.
"""

import contextlib
import gc
import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from ordsmed.base.workers import allow_termination_by_parent, blocking_stop_signals
from ordsmed.data.batch import Batch
from ordsmed.data.batch_sizes import BatchSizes
from ordsmed.data.rows import Rows
from ordsmed.data.windows import Ints


@dataclass(frozen=True)
class Share:
    """How a global batch is divided into ranks and micro-batches."""

    batch: int
    micro: int
    rank: int = 0
    world: int = 1
    sizes: BatchSizes | None = None  # sizes of a growing batch, up to `batch`; None: constant

    @property
    def accumulation(self) -> int:
        """Return the number of micro-batches per step and rank; if the batch grows, at its full size."""
        return self.batch // (self.world * self.micro)

    def rows(self, step: int) -> tuple[int, int]:
        return self.sizes.at(step) if self.sizes else (step * self.batch, self.batch)

    def accumulation_at(self, step: int) -> int:
        return self.rows(step)[1] // (self.world * self.micro)

    def before(self, step: int) -> int:
        return self.rows(step)[0] // (self.world * self.micro)

    def place(self, number: int) -> tuple[int, int]:
        """Return the step of a rank's micro-batch, counted from the start of the phase, and its number in that step."""
        row = number * self.world * self.micro
        step = self.sizes.step_of(row) if self.sizes else row // self.batch
        return step, number - self.before(step)

    def numbers(self, step: int, micro: int) -> Ints:
        row, size = self.rows(step)
        first = row + self.rank * (size // self.world) + micro * self.micro
        return np.arange(first, first + self.micro)


class MicroBatches(Dataset[Batch]):
    def __init__(self, rows: Rows, share: Share, first: int, steps: int) -> None:
        self.rows, self.share, self.first, self.steps = rows, share, first, steps

    def __len__(self) -> int:
        return self.share.before(self.steps) - self.share.before(self.first)

    def __getitem__(self, index: int) -> Batch:
        return self.rows.batch(self.share.numbers(*self.share.place(self.share.before(self.first) + index)))


def load(
    rows: Rows,
    share: Share,
    first: int,
    steps: int,
    *,
    workers: int,
    device: torch.device,
    stop: Callable[[], int] = lambda: 0,
) -> Iterator[list[Batch]]:
    """Yield the micro-batches of each step from `first` to `steps`, on the CPU.

    They are prepared by `workers` processes, or by this process if 0. If `stop` returns true during a step, fewer
    micro-batches are yielded for it.
    """
    micro = MicroBatches(rows, share, first, steps)
    ready: Iterator[Batch]
    if workers == 0:
        ready = (micro[i] for i in range(len(micro)))
    else:
        options: dict[str, Any] = {"batch_size": None, "shuffle": False, "worker_init_fn": _begin}
        # these processes ignore a stop signal to the process group and keep preparing batches
        forked = multiprocessing.get_start_method() == "fork"
        with _all_or_none(), blocking_stop_signals(forked=forked), _garbage_kept():
            ready = iter(DataLoader(micro, num_workers=workers, pin_memory=device.type == "cuda", **options))
    for step in range(first, steps):
        batches: list[Batch] = []
        while len(batches) < share.accumulation_at(step) and not (batches and stop()):
            batches.append(next(ready))
        yield batches


@contextlib.contextmanager
def _all_or_none() -> Iterator[None]:
    """Kill the processes started in this context if one of them cannot be started.

    The others ignore a stop signal, and this process would wait for them when it ends.
    """
    before = multiprocessing.active_children()
    try:
        yield
    except BaseException as error:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if isinstance(half := frame.f_locals.get("self"), _MultiProcessingDataLoaderIter):
                half._shutdown = True  # or torch prints a traceback when it deletes the half-made iterator
        for process in multiprocessing.active_children():
            if process not in before:
                process.kill()
                process.join()
        raise


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """Keep forked processes from collecting this process's garbage; a GPU tensor in it would crash them."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _begin(worker: int) -> None:
    allow_termination_by_parent()
