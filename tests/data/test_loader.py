"""The loader: the rows of a step do not depend on the micro-batches or on the step where a run resumes."""

from __future__ import annotations

import dataclasses
import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kit.processes import alive
from ordsmed.base.ending import STOP_SIGNALS
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.batch_sizes import BatchSizes
from ordsmed.data.loader import MicroBatches, Share, load
from ordsmed.data.rows import Span
from ordsmed.data.windows import Ints

CPU = torch.device("cpu")


class Counted:
    """Rows whose tokens are made of their numbers."""

    def __len__(self) -> int:
        return 1000

    def batch(self, numbers: Ints) -> Batch:
        tokens = numbers[:, None] * 100 + np.arange(4)
        zeros = np.zeros_like(tokens)
        return batch_of(
            numbers=numbers, tokens=tokens, positions=zeros, targets=tokens, weights=np.ones(tokens.shape, np.float32)
        )

    def spans(self, numbers: Ints) -> list[Span]:
        return []


def same(a: Batch, b: Batch) -> bool:
    pairs = ((getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return all((x is None and y is None) or torch.equal(x, y) for x, y in pairs)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 10**9))
def test_ranks_and_micro_batches_cut_a_step_exactly(micro: int, accumulation: int, world: int, step: int) -> None:
    batch = micro * accumulation * world
    shares = [Share(batch, micro, rank, world) for rank in range(world)]
    assert {s.accumulation for s in shares} == {accumulation}
    parts = [s.numbers(step, m) for s in shares for m in range(accumulation)]
    assert {len(p) for p in parts} == {micro}
    assert np.concatenate(parts).tolist() == list(range(step * batch, (step + 1) * batch))


@pytest.mark.parametrize(("sizes", "rows"), [(None, [12] * 5), (BatchSizes.of(36, 12, 12, 2), [12, 24, 36, 36, 36])])
def test_a_step_holds_the_same_rows_in_every_layout(sizes: BatchSizes | None, rows: list[int]) -> None:
    ends = np.cumsum([0, *rows])
    for micro, world in ((12, 1), (1, 1), (4, 1), (3, 2), (2, 3), (1, 12)):
        for first in (0, 1, 2, 4):
            shares = [Share(max(rows), micro, rank, world, sizes) for rank in range(world)]
            ranks = [list(load(Counted(), share, first, 5, workers=0, device=CPU)) for share in shares]
            for step in range(first, 5):
                parts = [rank[step - first] for rank in ranks]
                assert {len(part) for part in parts} == {rows[step] // (micro * world)}
                numbers = torch.cat([batch.numbers for part in parts for batch in part])
                assert numbers.tolist() == list(range(ends[step], ends[step + 1]))


def test_going_on_is_skipping() -> None:
    share = Share(6, 2)
    whole = list(load(Counted(), share, 0, 7, workers=0, device=CPU))
    assert [len(step) for step in whole] == [3] * 7
    for first in range(8):
        late = list(load(Counted(), share, first, 7, workers=0, device=CPU))
        assert len(late) == 7 - first
        assert all(same(a, b) for x, y in zip(late, whole[first:], strict=True) for a, b in zip(x, y, strict=True))
    far = next(load(Counted(), share, 10**6, 10**6 + 1, workers=0, device=CPU))
    assert far[0].numbers.tolist() == [6_000_000, 6_000_001]


def test_only_what_is_asked_for_is_made() -> None:
    made: list[int] = []

    class Watched(Counted):
        def batch(self, numbers: Ints) -> Batch:
            made.extend(numbers.tolist())
            return super().batch(numbers)

    ready = load(Watched(), Share(2, 1), 5, 1000, workers=0, device=CPU)
    next(ready)
    assert made == [10, 11]


def test_workers_make_the_same_batches() -> None:
    share = Share(6, 2)
    alone = list(load(Counted(), share, 2, 6, workers=0, device=CPU))
    helped = list(load(Counted(), share, 2, 6, workers=2, device=CPU))
    assert len(alone) == len(helped) == 4
    assert all(same(a, b) for x, y in zip(alone, helped, strict=True) for a, b in zip(x, y, strict=True))


def test_workers_never_collect_garbage_of_this_process(tmp_path: Path) -> None:
    """A tensor of a GPU among it would end them."""
    collected = tmp_path / "collected"

    class Garbage:
        """Only a collector frees it."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if os.getpid() != parent:
                collected.touch()

    class Collecting(Counted):
        """Collects garbage before each row."""

        def batch(self, numbers: Ints) -> Batch:
            gc.collect()
            return super().batch(numbers)

    parent = os.getpid()
    gc.disable()
    try:
        Garbage()
        assert len(list(load(Collecting(), Share(6, 2), 0, 2, workers=1, device=CPU))) == 2
        frozen = gc.get_freeze_count()
    finally:
        gc.enable()
    assert not collected.exists()
    assert not frozen, "this process goes on collecting"


def test_a_signal_to_the_process_group_ends_no_worker() -> None:
    """It asks the first process to stop, which needs their rows for the step that it finishes."""
    ready = load(Counted(), Share(6, 2), 0, 40, workers=2, device=CPU)
    steps = [next(ready)]
    for number in STOP_SIGNALS:
        told_by_another(number, multiprocessing.active_children())
        steps += [next(ready) for _ in range(3)]
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    alone = load(Counted(), Share(6, 2), 0, 40, workers=0, device=CPU)
    assert all(same(a, b) for x, y in zip([*steps, *ready], alone, strict=True) for a, b in zip(x, y, strict=True))
    assert not multiprocessing.active_children(), "with their last batch they end"


def told_by_another(number: int, processes: list[multiprocessing.Process]) -> None:
    """A signal of a process that is not their parent."""
    subprocess.run(["kill", f"-{number}", *(str(process.pid) for process in processes)], check=True)


def test_a_worker_that_hangs_ends_by_its_parent() -> None:

    class Hanging(Counted):
        """Never makes row 4."""

        def batch(self, numbers: Ints) -> Batch:
            while 4 in numbers:
                time.sleep(60)
            return super().batch(numbers)

    ready = load(Hanging(), Share(2, 2), 0, 40, workers=1, device=CPU)
    next(ready)
    (worker,) = multiprocessing.active_children()
    told_by_another(signal.SIGTERM, [worker])
    assert len(next(ready)) == 1
    while int(Path(f"/proc/{worker.pid}/status").read_text().partition("ShdPnd:")[2].split()[0], 16):
        time.sleep(0.01)  # two that are pending are one: that of another would swallow the parent's
    worker.terminate()
    worker.join(60)
    assert worker.exitcode == 0


def test_a_signal_while_workers_begin_ends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's own handler of SIGTERM is set before anything of ours could run there."""
    from torch.utils.data._utils import signal_handling

    plain = signal_handling._set_worker_signal_handlers

    def signalled() -> None:
        plain()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(signal_handling, "_set_worker_signal_handlers", signalled)
    assert len(list(load(Counted(), Share(6, 2), 0, 4, workers=2, device=CPU))) == 4


def test_this_process_hears_what_came_meanwhile() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        ready = load(Counted(), Share(6, 2), 0, 4, workers=1, device=CPU)
        next(ready)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
        assert len(list(ready)) == 3
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_as_many_micro_batches_as_are_left() -> None:
    """Processes that make batches ahead make no more than these."""
    assert [len(MicroBatches(Counted(), Share(6, 2), first, 7)) for first in (0, 5, 7)] == [21, 6, 0]


def test_of_processes_that_cannot_all_be_started_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[int]()
    fork = os.fork

    def limited() -> int:
        if started:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if pid := fork():
            started.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", limited)
    with pytest.raises(BlockingIOError):
        next(load(Counted(), Share(6, 2), 2, 6, workers=2, device=CPU))
    assert [alive(pid) for pid in started] == [False]
