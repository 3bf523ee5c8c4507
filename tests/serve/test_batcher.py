"""The queue and its batches: which items share a batch, cancellation, and errors of single items."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.serve.batcher import Batcher, BatchLimits
from ordsmed.serve.refusal import Refusal


@dataclass(eq=False)
class Doubling:
    """Work that records its batches, refuses some items, and can be made to wait."""

    bad: dict[Any, Exception] = field(default_factory=dict)
    most: int = 1_000
    batches: list[list[Any]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def __call__(self, items: list[tuple[Any, ...]]) -> Sequence[Any]:
        values = [value for (value,) in items]
        self.batches.append(values)
        self.begun.set()
        assert self.held.wait(20)
        if len(values) > self.most:
            raise MemoryError
        for value in values:
            if value in self.bad:
                raise self.bad[value]
        return [2 * value for value in values]


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    made = Batcher(BatchLimits(queue=40, cost=100, items=8, gather=0.0))
    made.start()
    yield made
    made.close()


def ask(batcher: Batcher, work: Doubling, values: Sequence[Any], cost: int = 10, seconds: float = 60) -> Future[Any]:
    return batcher.submit(work, [(value,) for value in values], [cost] * len(values), seconds)


def blocked(batcher: Batcher) -> Doubling:
    """The thread is busy until this is let go of."""
    work = Doubling()
    ask(batcher, work, [0])
    assert work.begun.wait(20)
    return work


def test_items_of_one_kind_are_computed_together(batcher: Batcher) -> None:
    busy, work, other = blocked(batcher), Doubling(), Doubling()
    futures = [ask(batcher, work, [1, 2]), ask(batcher, other, [7]), ask(batcher, work, [3])]
    for each in (work, other, busy):
        each.held.set()
    assert [future.result(20) for future in futures] == [[2, 4], [14], [6]]
    assert work.batches == [[1, 2, 3]]
    assert other.batches == [[7]]


def test_a_batch_is_no_larger_than_it_may_be(batcher: Batcher) -> None:
    """Batches are limited by items and by cost; items of similar cost come first."""
    busy, work = blocked(batcher), Doubling()
    many = ask(batcher, work, range(20))
    work.held.set()
    busy.held.set()
    assert many.result(20) == [2 * n for n in range(20)]
    assert [len(batch) for batch in work.batches] == [8, 8, 4]
    busy, work = blocked(batcher), Doubling()
    dear = ask(batcher, work, [1, 2, 3], cost=60)
    cheap = ask(batcher, work, [4], cost=50)
    work.held.set()
    busy.held.set()
    assert [dear.result(20), cheap.result(20)] == [[2, 4, 6], [8]]
    assert [len(batch) for batch in work.batches] == [1, 1, 1, 1]


def test_a_large_request_does_not_hold_up_the_others(batcher: Batcher) -> None:
    busy, work, other = blocked(batcher), Doubling(), Doubling()
    order: list[str] = []
    large, small = ask(batcher, work, range(36)), ask(batcher, other, [1])
    large.add_done_callback(lambda _: order.append("large"))
    small.add_done_callback(lambda _: order.append("small"))
    for each in (work, other, busy):
        each.held.set()
    large.result(20)
    assert order == ["small", "large"]
    assert len(work.batches) == 5


def test_who_is_canceled_or_too_late_leaves(batcher: Batcher) -> None:
    busy, work = blocked(batcher), Doubling()
    gone, late, stays = ask(batcher, work, [1]), ask(batcher, work, [2], seconds=-1), ask(batcher, work, [3])
    assert gone.cancel()
    work.held.set()
    busy.held.set()
    assert stays.result(20) == [6]
    assert work.batches == [[3]]
    with pytest.raises(Refusal, match="longer than its deadline") as refused:
        late.result(20)
    assert refused.value.status == 504


def test_a_bad_item_fails_its_own_request_alone(batcher: Batcher) -> None:
    busy, work = blocked(batcher), Doubling(bad={5: RecipeError("text", "is bad"), 6: ValueError("a mistake")})
    futures = [ask(batcher, work, [n]) for n in range(1, 8)]
    work.held.set()
    busy.held.set()
    assert [futures[n].result(20) for n in (0, 1, 2, 3, 6)] == [[2], [4], [6], [8], [14]]
    with pytest.raises(RecipeError, match="is bad"):
        futures[4].result(20)
    with pytest.raises(ValueError, match="a mistake"):
        futures[5].result(20)
    assert ask(batcher, work, [9]).result(20) == [18]


def test_a_request_of_its_own_mistake_is_not_halved(batcher: Batcher) -> None:
    work = Doubling(bad={3: RecipeError("text", "is bad")})
    work.held.set()
    with pytest.raises(RecipeError):
        ask(batcher, work, range(8)).result(20)
    assert len(work.batches) == 1


def test_with_too_little_memory_batches_are_halved(batcher: Batcher) -> None:
    busy, work = blocked(batcher), Doubling(most=2)
    future = ask(batcher, work, range(8))
    work.held.set()
    busy.held.set()
    assert future.result(20) == [2 * n for n in range(8)]
    assert [len(batch) for batch in work.batches] == [8, 4, 2, 2, 4, 2, 2]
    none = Doubling(most=0)
    none.held.set()
    with pytest.raises(Refusal, match="too little memory") as refused:
        ask(batcher, none, [1]).result(20)
    assert refused.value.status == 503


def test_a_full_queue_refuses_and_goes_on(batcher: Batcher) -> None:
    busy, work = blocked(batcher), Doubling()
    first = ask(batcher, work, range(39))
    with pytest.raises(Refusal, match="the queue is full: 39 items wait") as refused:
        ask(batcher, work, [1, 2])
    assert refused.value.status == 429
    last = ask(batcher, work, [50])
    work.held.set()
    busy.held.set()
    assert len(first.result(20)) == 39
    assert last.result(20) == [100]


def test_what_was_taken_is_finished_before_the_end(batcher: Batcher) -> None:
    busy, work = blocked(batcher), Doubling()
    future = ask(batcher, work, range(20))
    closing = threading.Thread(target=batcher.close)
    closing.start()
    work.held.set()
    busy.held.set()
    closing.join(20)
    assert future.result(0) == [2 * n for n in range(20)]
    with pytest.raises(Refusal, match="is stopping"):
        ask(batcher, work, [1])


class Steps:
    """Work of so many steps, which fails at one of them."""

    def __init__(self, size: int, fails_at: int = -1) -> None:
        self.size, self.fails_at, self.steps, self.errors = size, fails_at, 0, list[Exception]()
        self.over = threading.Event()

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.fails_at:
            raise ValueError("a mistake")
        self.size -= 1
        if not self.size:
            self.over.set()

    def fail(self, error: Exception) -> None:
        self.errors.append(error)
        self.size = 0
        self.over.set()


def test_steps_and_batches_take_turns(batcher: Batcher) -> None:
    busy, work, steps = blocked(batcher), Doubling(), Steps(3)
    batcher.add(steps, 3)
    future = ask(batcher, work, range(16))
    assert batcher.waiting == 19
    work.held.set()
    busy.held.set()
    assert future.result(20) == [2 * n for n in range(16)]
    assert steps.over.wait(20)
    assert steps.steps == 3
    broken = Steps(9, fails_at=2)
    batcher.add(broken, 9)
    assert broken.over.wait(20)
    assert [str(error) for error in broken.errors] == ["a mistake"]
    assert ask(batcher, work, [1]).result(20) == [2]
