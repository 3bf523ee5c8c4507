"""Batcher: a bounded queue of items of work, of which those of one kind are computed together in one thread.

    request A: 3 items -+                         the oldest item, and others of its kind of about its size
    request B: 1 item  -+->  queue, bounded  ->  [A1 B1 A2]  ->  work(items)  ->  results, a future a request
    request C: a stream -------------------------  a step between two batches  ->  ...

It knows neither models nor protocols: work is anything that can be hashed and called with a list of items. A request
of many items takes turns with the others; who is canceled or too late leaves; a batch that fails is halved, so that
one bad item, or too little memory, is told to its own request alone.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from ordsmed.base.errors import OrdsmedError
from ordsmed.serve.refusal import Refusal

NO_MEMORY = ("out of memory", "can't allocate memory", "can't start new thread")
TURN = 16  # items of a request that are computed before those of the next one have their turn


class BatchWork(Protocol, Hashable):
    """What is done with items; equal work is done together."""

    def __call__(self, items: list[tuple[object, ...]]) -> Sequence[object]: ...


class Stepper(Protocol):
    """BatchWork that goes on for many steps, as writing texts; between two of them others have their turn."""

    @property
    def size(self) -> int:
        """How many texts are not done; with none it has ended."""

    def step(self) -> None:
        """One step of all of them."""

    def fail(self, error: Exception) -> None:
        """A step raised this."""


@dataclass(eq=False)
class PendingRequest:
    """Items of one request, and where their results go."""

    work: BatchWork
    items: Sequence[tuple[object, ...]]
    deadline: float  # of time.monotonic
    future: Future[list[object]] = field(default_factory=Future)
    results: dict[int, object] = field(default_factory=dict)

    def put(self, number: int, result: object) -> None:
        """The result of an item; with the last one the request is answered."""
        self.results[number] = result
        if len(self.results) == len(self.items) and not self.future.done():
            with contextlib.suppress(Exception):  # it was canceled between the two lines
                self.future.set_result([self.results[n] for n in range(len(self.items))])

    def fail(self, error: BaseException) -> None:
        """The request is answered with an error; its other items are left."""
        if not self.future.done():
            with contextlib.suppress(Exception):
                self.future.set_exception(error)


@dataclass(eq=False)
class QueuedItem:
    """One item of a request."""

    request: PendingRequest
    number: int
    cost: int
    order: tuple[int, int]  # its turn, and when it came

    @property
    def value(self) -> tuple[object, ...]:
        return self.request.items[self.number]


@dataclass(frozen=True)
class BatchLimits:
    """How much is waited for and computed at once."""

    queue: int = 4_096  # items that may wait
    cost: int = 8_192  # of a batch
    items: int = 64  # of a batch
    gather: float = 0.002  # seconds in which others may come, where more than one client asks


class Batcher:
    """Computes in a thread of its own what is put into its queue."""

    on_batch: Callable[[int, float], None] = staticmethod(lambda items, seconds: None)  # is told of each

    def __init__(self, limits: BatchLimits | None = None, elsewhere: Callable[[int], int] | None = None) -> None:
        """`elsewhere`: told how many items wait here, says how many do in other processes with the same limit."""
        self.limits = limits or BatchLimits()
        self._elsewhere = elsewhere or (lambda waiting: 0)
        self.queue: list[QueuedItem] = []
        self.steppers: list[Stepper] = []
        self.computing = 0  # items of the batch that is computed now
        self.closing = False
        self._changed = threading.Condition()
        self._arrivals = itertools.count()
        self._crowded = False  # did the last batch hold items of several requests?
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, work: BatchWork, items: Sequence[tuple[object, ...]], costs: Sequence[int], seconds: float
    ) -> Future[list[object]]:
        """The results of all items, within so many seconds; refused where the queue has no room for them."""
        request = PendingRequest(work, items, time.monotonic() + seconds)
        with self._changed:
            self._check_room(len(items))
            came = next(self._arrivals)
            self.queue += [
                QueuedItem(request, number, cost, (number // TURN, came)) for number, cost in enumerate(costs)
            ]
            self._changed.notify()
        if not items:
            request.future.set_result([])
        return request.future

    def add(self, stepper: Stepper, count: int, begin: Callable[[], None] = lambda: None) -> None:
        """BatchWork that goes on step by step; `begin` gives more of it to one that may have been at work already."""
        with self._changed:
            self._check_room(count)
            begin()
            if stepper not in self.steppers:
                self.steppers.append(stepper)
            self._changed.notify()

    def _check_room(self, count: int) -> None:
        if self.closing:
            raise Refusal("closing", "the server is stopping")
        waiting = self.waiting
        every = waiting + self._elsewhere(
            waiting + count
        )  # told first: of two that ask at once none overlooks the other
        if every + count > self.limits.queue:
            self._elsewhere(waiting)
            raise Refusal("busy", f"the queue is full: {every:,} items wait")

    @property
    def waiting(self) -> int:
        """Items that are not computed yet, and texts that are being written."""
        return len(self.queue) + sum(stepper.size for stepper in self.steppers)

    def close(self) -> None:
        """Take nothing more, finish what was taken, and end the thread."""
        with self._changed:
            self.closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self.queue and not self.steppers:
                    if self.closing:
                        return
                    self._changed.wait()
            for stepper in tuple(self.steppers):
                _step(stepper)
                with self._changed:
                    if not stepper.size:
                        self.steppers.remove(stepper)
            if batch := self._next():
                began = time.monotonic()
                self.computing = len(batch)
                _compute(batch)
                self.computing = 0
                self.on_batch(len(batch), time.monotonic() - began)
            self._elsewhere(self.waiting)

    def _next(self) -> list[QueuedItem]:
        """The items of the next batch, the oldest turn among them."""
        with self._changed:
            if self._crowded and 0 < len(self.queue) < self.limits.items and not self.steppers:
                self._changed.wait(self.limits.gather)
            self._drop()
            if not self.queue:
                return []
            first = min(self.queue, key=lambda item: item.order)
            alike = [item for item in self.queue if item.request.work == first.request.work and item is not first]
            alike.sort(key=lambda item: (abs(item.cost - first.cost), item.order))
            batch, cost = [first], first.cost
            for item in alike[: self.limits.items - 1]:
                cost += item.cost
                if cost > self.limits.cost:
                    break
                batch.append(item)
            chosen = set(map(id, batch))
            self.queue = [item for item in self.queue if id(item) not in chosen]
            self._crowded = len({id(item.request) for item in (*batch, *self.queue)}) > 1
            return batch

    def _drop(self) -> None:
        """Leave out items of requests that are answered, canceled or too late."""
        now = time.monotonic()
        for item in self.queue:
            if item.request.deadline < now:
                item.request.fail(Refusal("late", "the request waited longer than its deadline"))
        self.queue = [item for item in self.queue if not item.request.future.done()]


def _step(stepper: Stepper) -> None:
    """One step; one that fails is told so."""
    try:
        stepper.step()
    except Exception as error:
        stepper.fail(as_refusal(error))


def _compute(batch: list[QueuedItem]) -> None:
    """Results of a batch; of one that fails those of its halves, down to the item that cannot be."""
    try:
        results = batch[0].request.work([item.value for item in batch])
    except Exception as error:
        if len(batch) == 1 or _is_hopeless(error, batch):
            for item in batch:
                item.request.fail(as_refusal(error))
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            if left := [item for item in half if not item.request.future.done()]:
                _compute(left)
        return
    for item, result in zip(batch, results, strict=True):
        item.request.put(item.number, result)


def _is_hopeless(error: Exception, batch: list[QueuedItem]) -> bool:
    """Is it one request's own mistake, whatever is left out of it?"""
    return isinstance(error, OrdsmedError) and len({id(item.request) for item in batch}) == 1


def as_refusal(error: Exception) -> Exception:
    """Too little memory, for a thread too, is something to be told; other errors stay what they are."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in NO_MEMORY):
        return Refusal("memory", "there is too little memory for this text", "a shorter one")
    return error
