"""Copies that sum their gradients, another rank played by a stub: buckets, their order, what is summed and when."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ordsmed.nn.shards import LocalParameter
from ordsmed.train.mesh import replicas
from ordsmed.train.mesh.replicas import Replicas, _cut


class Work:
    """A sum on its way: nothing is there before it is waited for."""

    def __init__(self, flat: Tensor, group: Any) -> None:
        self.flat, self.group, self.sent = flat, group, flat.clone()

    def wait(self) -> None:
        self.flat.mul_(3)  # two other ranks have the same


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """What was given away to be summed, in its order; each bucket holds 10 numbers of fp32."""
    works: list[Work] = []

    def all_reduce(flat: Tensor, group: Any = None, async_op: bool = False) -> Work:
        assert async_op
        works.append(Work(flat, group))
        return works[-1]

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(replicas, "BUCKET_BYTES", 40)
    return works


def parts_of(*sizes: int) -> list[LocalParameter]:
    return [
        LocalParameter.of(f"p{n}", torch.nn.Parameter(torch.full((size,), float(n + 1))))
        for n, size in enumerate(sizes)
    ]


def backward(parts: list[LocalParameter], *, first: int = 0) -> None:
    """A gradient of 2 * its own number for each, the last part first as a backward pass has it."""
    for part in reversed(parts[first:]):
        (part.local * part.local).sum().backward()


def test_buckets_are_cut_by_size_and_kind_of_number() -> None:
    sizes = [4, 6, 1, 20, 1]
    named = lambda found: [[part.name for part in bucket] for bucket in found]  # noqa: E731
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replicas, "BUCKET_BYTES", 40)
        assert named(_cut(parts_of(*sizes))) == [["p0", "p1"], ["p2", "p3"], ["p4"]]
        mixed = parts_of(1, 1, 1)
        mixed[1] = LocalParameter.of("half", torch.nn.Parameter(torch.zeros(1, dtype=torch.bfloat16)))
        assert named(_cut(mixed)) == [["p0"], ["half"], ["p2"]]
    assert _cut([]) == []


@pytest.mark.parametrize("overlap", [False, True])
def test_gradients_are_summed_over_the_group_from_the_last_to_the_first(sent: list[Work], overlap: bool) -> None:
    """Each once, put back in its own place and shape; parts without a gradient count as 0."""
    parts = parts_of(4, 6, 12, 3)
    made = Replicas(parts, "the group", overlap=overlap, reduce="fp32")
    assert [[part.name for part in bucket.parts] for bucket in made.buckets] == [["p3", "p2"], ["p1", "p0"]]
    for _ in range(2):
        made.before_micro_batch(True)
        backward(parts, first=1)
        assert len(sent) == int(overlap)
        made.sum_gradients()
        assert [work.sent.tolist() for work in sent] == [[8.0] * 3 + [6.0] * 12, [4.0] * 6 + [0.0] * 4]
        assert [work.group for work in sent] == ["the group"] * 2
        for number, part in enumerate(parts):
            assert part.local.grad is not None
            assert part.local.grad.tolist() == [6.0 * (number + 1) * bool(number)] * len(part.local)
            part.local.grad = None
        sent.clear()


def test_only_the_last_micro_batch_gives_its_sums_away(sent: list[Work]) -> None:
    parts = parts_of(10, 10)
    made = Replicas(parts, None, overlap=True, reduce="fp32")
    for last in (False, False, True):
        made.before_micro_batch(last)
        backward(parts)
        assert len(sent) == 2 * last
    made.sum_gradients()
    assert [work.sent[0].item() for work in sent] == [12.0, 6.0]  # three micro-batches, the last part first
    assert [part.local.grad[0].item() for part in parts if part.local.grad is not None] == [18.0, 36.0]
    backward(parts)  # a validation or a measurement between two steps
    assert len(sent) == 2


def test_buckets_leave_in_their_own_order_whoever_is_ready_first(sent: list[Work]) -> None:
    """Ranks may finish gradients in other orders: what is summed with what must not depend on it."""
    parts = parts_of(10, 10, 5, 5)
    made = Replicas(parts, None, overlap=True, reduce="fp32")
    made.before_micro_batch(True)
    (parts[0].local * 1).sum().backward()
    (parts[1].local * 2).sum().backward()
    (parts[2].local * 3).sum().backward()
    assert sent == []
    (parts[3].local * 4).sum().backward()
    assert [work.sent.tolist() for work in sent] == [[4.0] * 5 + [3.0] * 5, [2.0] * 10, [1.0] * 10]
    made.sum_gradients()
    assert len(sent) == 3


def test_sums_travel_in_the_numbers_that_are_asked_for(sent: list[Work]) -> None:
    parts = parts_of(2)
    made = Replicas(parts, None, overlap=False, reduce="bf16")
    backward(parts)
    made.sum_gradients()
    assert sent[0].flat.dtype == torch.bfloat16
    assert parts[0].local.grad is not None
    assert parts[0].local.grad.dtype == torch.float32


def test_before_the_first_step_nothing_is_given_away(sent: list[Work]) -> None:
    """What is measured then is no step: the other ranks would wait for it."""
    parts = parts_of(10)
    Replicas(parts, None, overlap=True, reduce="fp32")
    backward(parts)
    assert sent == []
