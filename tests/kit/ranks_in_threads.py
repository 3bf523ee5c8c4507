"""Ranks in threads of one process: enough of torch.distributed and of a DTensor for what sums over ranks itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist

HOW: dict[Any, Callable[..., Tensor]] = {
    dist.ReduceOp.SUM: torch.sum,
    dist.ReduceOp.MAX: torch.amax,
    dist.ReduceOp.MIN: torch.amin,
}


class Group:
    """Threads that sum, in the order of their ranks; each enters with its own number."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.held = size, threading.Barrier(size, timeout=480), dict[int, Tensor]()
        self.own = threading.local()

    def all_reduce(self, values: Tensor, op: Any) -> None:
        rank = self.own.rank
        self.held[rank] = values.detach().clone()
        self.barrier.wait()
        found = HOW[op](torch.stack([self.held[other] for other in range(self.size)]), dim=0)
        self.own.calls += 1
        self.barrier.wait()
        values.detach().copy_(found)


class Split:
    """One rank's box of a tensor that is split by a dimension, as a DTensor tells it."""

    def __init__(self, group: Group, whole: Tensor, box: Tensor, start: int, dimension: int = 0) -> None:
        self.shape, self.box, self.group, self.ndim = whole.shape, box, group, whole.ndim
        self.start, self.dimension, self.whole = start, dimension, whole
        self.placements, self.device_mesh, self.requires_grad = (self,), self, True

    def __len__(self) -> int:
        return self.shape[0]

    def numel(self) -> int:
        return self.shape.numel()

    def is_replicate(self) -> bool:
        return False

    def get_group(self, _: int) -> Group:
        return self.group

    def size(self, _: int) -> int:
        return self.group.size

    def to_local(self) -> Tensor:
        return self.box

    def __create_chunk_list__(self) -> list[Any]:
        offsets = [0] * self.ndim
        offsets[self.dimension] = self.start
        chunk = type("Chunk", (), {"offsets": offsets, "sizes": tuple(self.box.shape)})
        return [chunk]


def on_ranks(size: int, work: Callable[[int, Group], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What each rank's work returns; an error of one is raised here."""

    def all_reduce(values: Tensor, op: Any = dist.ReduceOp.SUM, group: Group | None = None) -> None:
        assert group is not None
        group.all_reduce(values, op)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    group, found, errors = Group(size), [None] * size, list[BaseException]()

    def run(rank: int) -> None:
        group.own.rank, group.own.calls = rank, 0
        try:
            found[rank] = work(rank, group)
        except BaseException as error:
            errors.append(error)
            group.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return found
