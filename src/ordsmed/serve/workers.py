"""Workers: several processes behind one port: the parent listens and starts those anew that die; workers accept.

    parent: port, SharedMemory  --fork-->  worker 1: model, batcher, server     one queue of new connections
                                --fork-->  worker 2: ...                        shared: who waits, counts, reloads

All take from one queue of the system's: what a worker that dies has not taken, another one takes. (With a queue each,
by SO_REUSEPORT, these would be lost, and the system deals by a hash, not to whom has least.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from ordsmed.base.errors import RunError
from ordsmed.base.launch.local import end_with_parent
from ordsmed.base.say import many, say
from ordsmed.serve.refusal import Refusal
from ordsmed.serve.shared import SharedMemory, SharedPart

if TYPE_CHECKING:
    from ordsmed.serve.batcher import Batcher
    from ordsmed.serve.models import ServedModels  # with torch, which the parent does without

LOOK = 0.05  # seconds between two looks at the workers
LEAD = 0.001  # seconds in which a worker with fewer connections may take a new one first
SOON = 10.0  # a worker that lives shorter than this waits before it is started anew, each time longer
LONGEST = 30.0  # seconds of that wait
HUNG = 60  # seconds without a tick after which a worker is ended


@dataclass(frozen=True)
class Worker:
    """One of them, as it sees itself and the others."""

    shared: SharedMemory
    number: int
    parent: int
    first: bool  # is it the one that tells what is served?

    @property
    def row(self) -> SharedPart:
        return self.shared.rows[self.number]

    @property
    def others(self) -> list[SharedPart]:
        """Those that live."""
        return [row for number, row in enumerate(self.shared.rows) if number != self.number and row["pid"]]

    @property
    def stopping(self) -> bool:
        """Is the server to stop, not this worker alone?"""
        return bool(self.shared["stop"]) or os.getppid() != self.parent

    def leave(self) -> None:
        """It alone ends and ticks no more: it may take as long as its requests do."""
        self.row["ticked"] = 0

    def waiting_elsewhere(self, waiting: int) -> int:
        """Told how many texts wait here; so many wait in the others."""
        self.row["waiting"] = waiting
        return sum(row["waiting"] for row in self.others)

    def has_most(self) -> bool:
        """Has another one that is ready fewer connections?"""
        return any(row["ready"] and row["connections"] < self.row["connections"] for row in self.others)

    def tick(self, connections: int, models: ServedModels, batcher: Batcher) -> None:
        """Of the server, some times a second: what it counts is told, and what others ask for begun."""
        self.row["connections"], self.row["computing"], self.row["ready"] = connections, batcher.computing, 1
        self.row["ticked"] = int(time.monotonic())
        if self.row["reloading"] < (wanted := self.shared["reload"]):
            self.row["reloading"] = wanted
            asyncio.get_running_loop().create_task(self._reload(models, wanted))

    async def _reload(self, models: ServedModels, wanted: int) -> None:
        """Here; what goes wrong is left in the shared memory for who asked."""
        parts: list[str] = []
        try:
            await asyncio.to_thread(models.reload)
        except Refusal as refusal:
            parts = [refusal.problem, refusal.wanted, refusal.remedy, refusal.place]
        except Exception:
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            parts = ["a mistake of the server's; its log has it", "", "", ""]
        self.row.write("problem", msgspec.json.encode(parts))
        self.row["reloaded"] = wanted

    async def reload(self) -> None:
        """All workers open their models again; refused where some cannot."""
        wanted = self.shared["reload"] = self.shared["reload"] + 1
        while any(row["reloaded"] < wanted for row in (self.row, *self.others)):
            if self.stopping:
                raise Refusal("closing", "the server is stopping")
            await asyncio.sleep(LOOK)
        rows = [self.row, *self.others]
        problems = [parts for row in rows if (parts := msgspec.json.decode(row.read("problem") or b"[]"))]
        if problems:
            first, *rest = problems[0]
            some = f"{len(problems)} of {many(len(rows), 'worker')}: " if len(problems) < len(rows) else ""
            raise Refusal("cannot", some + first, *rest)

    def listener(self, port: socket.socket) -> SharedListener:
        listener = SharedListener(fileno=os.dup(port.fileno()))
        listener.worker = self
        listener.setblocking(False)
        return listener


class SharedListener(socket.socket):
    """The port, from which others take connections as well: who has fewer is let go first."""

    worker: Worker

    def accept(self) -> tuple[socket.socket, object]:
        if self.worker.has_most():
            time.sleep(LEAD)
        accepted = super().accept()
        self.worker.row["connections"] += 1  # until the server counts them
        return accepted

    def listen(self, backlog: int = 0, /) -> None:
        """The parent does."""


@dataclass
class Child:
    """A worker as the parent sees it."""

    pid: int = 0
    began: float = 0.0
    due: float = 0.0  # when it is to be started
    wait: float = 0.0  # seconds that it waited the last time
    ticked: int = 0  # its last tick, and when the parent saw that it was a new one
    seen: float = 0.0

    def delay(self, seconds: float) -> None:
        """Set when it is started again: in so many seconds, but LONGEST at most."""
        self.wait = min(seconds, LONGEST)
        self.due = time.monotonic() + self.wait


@dataclass
class WorkerKeeper:
    """The parent's part."""

    shared: SharedMemory
    children: list[Child] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # workers that did not end as they were asked to
    looked: float = 0.0  # when it last looked whether they tick

    def run(self, ready: Callable[[], None]) -> Worker | None:
        """In each worker that worker; in the parent None, when all have ended after a signal.

        `ready` is called once all listen. The first one is started alone, so that what is wrong is told once.
        """
        self.children = [Child() for _ in self.shared.rows]
        with self._hearing():
            for group in ([0], [*range(1, len(self.children))]):
                for number in group:
                    if worker := self._start(number, first=number == 0):
                        return worker
                while not self.shared["stop"] and not all(self.shared.rows[number]["ready"] for number in group):
                    if worker := self._look(opened=group != [0]):
                        return worker
            if not self.shared["stop"]:
                ready()
            while not self.shared["stop"]:
                if worker := self._look():
                    return worker
            self._end()
        return None

    def _start(self, number: int, *, first: bool = False) -> Worker | None:
        """Fork it; in the child, the worker."""
        parent, row, child = os.getpid(), self.shared.rows[number], self.children[number]
        row.mend()
        row["ready"] = row["ticked"] = row["waiting"] = row["computing"] = row["connections"] = 0
        row["reloading"] = row["reloaded"] = self.shared["reload"]
        row["starts"] += 1
        signals = {signal.SIGTERM, signal.SIGINT}
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # until the child has its own handlers
        if self.shared["stop"]:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            return None
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            if not child.began:  # the server does not listen yet, or not with all its workers
                raise
            child.delay(max(1.0, 2 * child.wait))
            say(f"worker {number + 1} cannot be started ({error.strerror}); it is tried again in {child.wait:g} s")
            return None
        if pid == 0:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all, and the parent hands it on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            row["pid"] = os.getpid()
            return Worker(self.shared, number, parent, first)
        row["pid"] = pid
        child.pid, child.began = pid, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return None

    def _look(self, *, opened: bool = True) -> Worker | None:
        """Who has died is noted, and started anew when it is due; before the first one listens, that is the end."""
        time.sleep(LOOK)
        self._end_hung()
        for number, status in self._ended():
            if self.shared["stop"]:
                return None
            if not opened:
                raise SystemExit(status if status > 0 else 1)  # it has said why
            child = self.children[number]
            alive = time.monotonic() - child.began
            child.delay(0.0 if alive > SOON else max(1.0, 2 * child.wait))
            when = f"in {child.wait:g} s" if child.wait else "now"
            say(f"worker {number + 1} {_how(status)} after {alive:.0f} s; it is started anew {when}")
        for number, child in enumerate(self.children):
            due = not child.pid and child.began and time.monotonic() >= child.due and not self.shared["stop"]
            if due and (worker := self._start(number)):
                return worker
        return None

    def _end_hung(self) -> None:
        """Connections that the system hands to a worker that hangs would wait for good.

        Where the parent did not run either (Ctrl-Z, a machine that slept), all have their time again.
        """
        now = time.monotonic()
        paused, self.looked = now - self.looked > SOON, now
        for number, (child, row) in enumerate(zip(self.children, self.shared.rows, strict=True)):
            if paused or row["ticked"] != child.ticked:
                child.ticked, child.seen = row["ticked"], now
            elif child.pid and child.ticked and now - child.seen > HUNG:
                row["ticked"] = 0
                say(f"worker {number + 1} hangs: it has not ticked for {now - child.seen:.0f} s; it is ended")
                os.kill(child.pid, signal.SIGKILL)

    def _ended(self) -> Iterator[tuple[int, int]]:
        """Those that are gone: number, and status or minus a signal."""
        for number, child in enumerate(self.children):
            if child.pid:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    child.pid = self.shared.rows[number]["pid"] = 0
                    yield number, os.waitstatus_to_exitcode(status)

    def _end(self) -> None:
        """Wait for all of them; of each that fails it is told."""
        while any(child.pid for child in self.children):
            for number, status in self._ended():
                if status and self.shared.rows[number]["ready"]:
                    self.failed.append(f"worker {number + 1} {_how(status)}")
            time.sleep(LOOK)

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[None]:
        """A signal stops all: a worker that opens its model still ends at once; with a second signal all do."""
        process = os.getpid()

        def hear(number: int, frame: FrameType | None) -> None:
            again, self.shared["stop"] = self.shared["stop"], 1
            for child in self.children:
                if child.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL if again else signal.SIGTERM)

        before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            if os.getpid() == process:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def check(self) -> None:
        """Refuse to say that all went well where it did not."""
        if self.failed:
            problem = f"{', '.join(self.failed)} while the server stopped: what it had accepted is lost"
            raise RunError("serve", problem, f"{many(len(self.children), 'worker')} that end by themselves")


def _how(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
