"""Dynamic batching: a bounded queue of items; items of the same kind are computed together in one thread.

    request A: 3 items -+                         the oldest item, and others of the same work and similar cost
    request B: 1 item  -+->  queue, bounded  ->  [A1 B1 A2]  ->  work(items)  ->  results, a future a request
    request C: a stream -------------------------  one step between two batches  ->  ...

The batcher knows neither models nor protocols: work is any hashable callable that takes a list of items. A request with
many items takes turns with the others. Requests that are canceled or too late are dropped. A batch that fails is split
in halves, so that a bad item, or one that needs too much memory, fails only its own request.
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
TURN = 16  # items of a request per turn, after which other requests get a turn


class BatchWork(Protocol, Hashable):
    """A function of a list of items. Items with equal work may be computed in one batch."""

    def __call__(self, items: list[tuple[object, ...]]) -> Sequence[object]: ...


class Stepper(Protocol):
    """Work in many steps, such as generating texts. Batches of other work run between two steps."""

    @property
    def size(self) -> int:
        """Return the number of unfinished texts. At 0 the stepper is removed."""

    def step(self) -> None:
        """Advance all texts by one step."""

    def fail(self, error: Exception) -> None:
        """Handle an error that a step raised."""


@dataclass(eq=False)
class PendingRequest:
    work: BatchWork
    items: Sequence[tuple[object, ...]]
    deadline: float  # on the clock of time.monotonic
    future: Future[list[object]] = field(default_factory=Future)
    results: dict[int, object] = field(default_factory=dict)

    def put(self, number: int, result: object) -> None:
        """Store the result of an item. The last one completes the request."""
        self.results[number] = result
        if len(self.results) == len(self.items) and not self.future.done():
            with contextlib.suppress(Exception):  # the future may have been canceled since the check
                self.future.set_result([self.results[n] for n in range(len(self.items))])

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            with contextlib.suppress(Exception):
                self.future.set_exception(error)


@dataclass(eq=False)
class QueuedItem:
    request: PendingRequest
    number: int
    cost: int
    order: tuple[int, int]  # turn of the item, then order of arrival

    @property
    def value(self) -> tuple[object, ...]:
        return self.request.items[self.number]


@dataclass(frozen=True)
class BatchLimits:
    queue: int = 4_096  # waiting items
    cost: int = 8_192  # sum of the costs of a batch
    items: int = 64  # items of a batch
    gather: float = 0.002  # seconds to wait for more items, if several clients are active


class Batcher:
    """Computes queued items in batches, in a separate thread."""

    on_batch: Callable[[int, float], None] = staticmethod(lambda items, seconds: None)  # called after each batch

    def __init__(self, limits: BatchLimits | None = None, elsewhere: Callable[[int], int] | None = None) -> None:
        """Create a batcher; `start` starts its thread.

        `elsewhere` takes the number of items waiting here and returns that of other processes; `limits.queue` limits
        the sum.
        """
        self.limits = limits or BatchLimits()
        self._elsewhere = elsewhere or (lambda waiting: 0)
        self.queue: list[QueuedItem] = []
        self.steppers: list[Stepper] = []
        self.computing = 0  # items in the current batch
        self.closing = False
        self._changed = threading.Condition()
        self._arrivals = itertools.count()
        self._crowded = False  # whether several requests had items when the last batch was made
        self._thread = threading.Thread(target=self._run, name="batcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(
        self, work: BatchWork, items: Sequence[tuple[object, ...]], costs: Sequence[int], seconds: float
    ) -> Future[list[object]]:
        """Queue the items and return a future for all results, in order. Refuse them if the queue is full."""
        request = PendingRequest(work, items, time.monotonic() + seconds)
        with self._changed:
            self._check_queue(len(items))
            arrival = next(self._arrivals)
            self.queue += [
                QueuedItem(request, number, cost, (number // TURN, arrival)) for number, cost in enumerate(costs)
            ]
            self._changed.notify()
        if not items:
            request.future.set_result([])
        return request.future

    def add(self, stepper: Stepper, count: int, start: Callable[[], None] = lambda: None) -> None:
        """Add work in steps, which may be running already. `start` gives it new texts."""
        with self._changed:
            self._check_queue(count)
            start()
            if stepper not in self.steppers:
                self.steppers.append(stepper)
            self._changed.notify()

    def _check_queue(self, count: int) -> None:
        if self.closing:
            raise Refusal("closing", "the server is stopping")
        waiting = self.waiting
        # publish the new number before reading the others', so that two processes see each other
        total = waiting + self._elsewhere(waiting + count)
        if total + count > self.limits.queue:
            self._elsewhere(waiting)
            raise Refusal("busy", f"the queue is full: {total:,} items wait")

    @property
    def waiting(self) -> int:
        """Number of items that are not computed yet, plus texts being generated."""
        return len(self.queue) + sum(stepper.size for stepper in self.steppers)

    def close(self) -> None:
        """Refuse new items, finish the accepted ones, and end the thread."""
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
            if batch := self._next_batch():
                start = time.monotonic()
                self.computing = len(batch)
                _compute(batch)
                self.computing = 0
                self.on_batch(len(batch), time.monotonic() - start)
            self._elsewhere(self.waiting)

    def _next_batch(self) -> list[QueuedItem]:
        """Remove and return the next batch: the oldest item, and items with equal work and the most similar costs."""
        with self._changed:
            if self._crowded and 0 < len(self.queue) < self.limits.items and not self.steppers:
                self._changed.wait(self.limits.gather)
            self._drop_finished()
            if not self.queue:
                return []
            first = min(self.queue, key=lambda item: item.order)
            same_work = [item for item in self.queue if item.request.work == first.request.work and item is not first]
            same_work.sort(key=lambda item: (abs(item.cost - first.cost), item.order))
            batch, cost = [first], first.cost
            for item in same_work[: self.limits.items - 1]:
                cost += item.cost
                if cost > self.limits.cost:
                    break
                batch.append(item)
            chosen = set(map(id, batch))
            self.queue = [item for item in self.queue if id(item) not in chosen]
            self._crowded = len({id(item.request) for item in (*batch, *self.queue)}) > 1
            return batch

    def _drop_finished(self) -> None:
        now = time.monotonic()
        for item in self.queue:
            if item.request.deadline < now:
                item.request.fail(Refusal("late", "the request waited longer than its deadline"))
        self.queue = [item for item in self.queue if not item.request.future.done()]


def _step(stepper: Stepper) -> None:
    try:
        stepper.step()
    except Exception as error:
        stepper.fail(as_refusal(error))


def _compute(batch: list[QueuedItem]) -> None:
    """Compute a batch. If it fails, compute its halves, so that only the items that cannot be computed fail."""
    try:
        results = batch[0].request.work([item.value for item in batch])
    except Exception as error:
        if len(batch) == 1 or _is_fault_of_request(error, batch):
            for item in batch:
                item.request.fail(as_refusal(error))
            return
        for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            if pending := [item for item in half if not item.request.future.done()]:
                _compute(pending)
        return
    for item, result in zip(batch, results, strict=True):
        item.request.put(item.number, result)


def _is_fault_of_request(error: Exception, batch: list[QueuedItem]) -> bool:
    """Return whether all items are of one request and the error is about its inputs: smaller batches would fail too."""
    return isinstance(error, OrdsmedError) and len({id(item.request) for item in batch}) == 1


def as_refusal(error: Exception) -> Exception:
    """Return a refusal if the error means too little memory, else the error."""
    text = str(error).lower()
    if isinstance(error, MemoryError) or any(sign in text for sign in NO_MEMORY):
        return Refusal("memory", "there is too little memory for this text", "a shorter text")
    return error
