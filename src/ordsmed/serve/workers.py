"""Worker processes that share a port: the parent listens and restarts workers that die; the workers accept connections.

    parent: port, SharedMemory  --fork-->  worker 1: model, batcher, server     one queue of new connections
                                --fork-->  worker 2: ...                        shared: queue sizes, counts, reloads

All workers accept from one queue of the operating system, so connections that a dead worker has not accepted go to
another one. (With SO_REUSEPORT each worker has a queue: its connections would be lost, and the system assigns them by a
hash, not to the least busy worker.)
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
from ordsmed.serve.shared_memory import SharedMemory, SharedPart

if TYPE_CHECKING:
    from ordsmed.serve.batcher import Batcher
    from ordsmed.serve.models import ServedModels  # it imports torch, which the parent does not need

LOOK = 0.05  # seconds between two checks of the workers
LEAD = 0.001  # seconds that a worker with fewer connections has to accept first
SOON = 10.0  # seconds: a worker that dies sooner is restarted with a growing delay
LONGEST = 30.0  # seconds of that delay at most
HUNG = 60  # seconds without a tick after which a worker is killed


@dataclass(frozen=True)
class Worker:
    """A worker process: its number, and access to the shared memory with its own row and those of the other workers."""

    shared: SharedMemory
    number: int
    parent: int
    first: bool  # is it the worker that prints what is served?

    @property
    def row(self) -> SharedPart:
        return self.shared.rows[self.number]

    @property
    def others(self) -> list[SharedPart]:
        return [row for number, row in enumerate(self.shared.rows) if number != self.number and row["pid"]]

    @property
    def stopping(self) -> bool:
        """Return whether the server is stopping, and not only this worker."""
        return bool(self.shared["stop"]) or os.getppid() != self.parent

    def leave(self) -> None:
        """Stop ticking, so that the parent lets this worker finish its requests, however long they take."""
        self.row["ticked"] = 0

    def waiting_elsewhere(self, waiting: int) -> int:
        """Publish the number of items waiting here; return the number waiting in other workers."""
        self.row["waiting"] = waiting
        return sum(row["waiting"] for row in self.others)

    def has_most(self) -> bool:
        """Return whether another ready worker has fewer connections."""
        return any(row["ready"] and row["connections"] < self.row["connections"] for row in self.others)

    def tick(self, connections: int, models: ServedModels, batcher: Batcher) -> None:
        """Publish this worker's numbers and begin a requested reload. The server calls this a few times a second."""
        self.row["connections"], self.row["computing"], self.row["ready"] = connections, batcher.computing, 1
        self.row["ticked"] = int(time.monotonic())
        if self.row["reloading"] < (wanted := self.shared["reload"]):
            self.row["reloading"] = wanted
            asyncio.get_running_loop().create_task(self._reload(models, wanted))

    async def _reload(self, models: ServedModels, wanted: int) -> None:
        """Reload the models of this worker. An error is left in shared memory for the worker that was asked."""
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
        """Reload the models of all workers and wait for them. Refuse if one of them fails."""
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
    """The shared port. A worker with more connections than others lets them accept first."""

    worker: Worker

    def accept(self) -> tuple[socket.socket, object]:
        if self.worker.has_most():
            time.sleep(LEAD)
        accepted = super().accept()
        self.worker.row["connections"] += 1  # until the next tick counts them
        return accepted

    def listen(self, backlog: int = 0, /) -> None:
        """Do nothing: the parent listens already."""


@dataclass
class Child:
    pid: int = 0
    began: float = 0.0
    due: float = 0.0  # time of the next start
    wait: float = 0.0  # seconds between its end and `due`; doubled each time it ends soon after its start
    ticked: int = 0  # its last tick, and (`seen`) when the parent saw it change
    seen: float = 0.0

    def delay(self, seconds: float) -> None:
        """Set the time of the next start: in `seconds`, but at most LONGEST."""
        self.wait = min(seconds, LONGEST)
        self.due = time.monotonic() + self.wait


@dataclass
class WorkerKeeper:
    """The parent: starts, watches and ends the workers."""

    shared: SharedMemory
    children: list[Child] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # workers that ended with an error while the server stopped
    looked: float = 0.0  # time of the last check for ticks

    def run(self, ready: Callable[[], None]) -> Worker | None:
        """Start the workers. Return the worker in each worker process, and None in the parent after all have ended.

        `ready` is called once all workers listen. The first worker starts alone, so that an error is printed only once.
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
        """Fork a worker process. Return the worker in the child, and None in the parent."""
        parent, row, child = os.getpid(), self.shared.rows[number], self.children[number]
        row.repair()
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
            if not child.began:  # during startup this is an error
                raise
            child.delay(max(1.0, 2 * child.wait))
            say(f"worker {number + 1} cannot be started ({error.strerror}); it is tried again in {child.wait:g} s")
            return None
        if pid == 0:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent forwards it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            row["pid"] = os.getpid()
            return Worker(self.shared, number, parent, first)
        row["pid"] = pid
        child.pid, child.began = pid, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return None

    def _look(self, *, opened: bool = True) -> Worker | None:
        """Note which workers have died, and restart those that are due. If the first one dies while starting, exit."""
        time.sleep(LOOK)
        self._end_hung()
        for number, status in self._ended():
            if self.shared["stop"]:
                return None
            if not opened:
                raise SystemExit(status if status > 0 else 1)  # the worker has printed the reason
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
        """Kill workers that have not ticked for HUNG seconds: connections that they accept would wait forever.

        If the parent was suspended too (Ctrl-Z, a sleeping machine), the clocks of all workers start again.
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
        """Yield the number of each worker that has ended, and its exit status or minus its signal."""
        for number, child in enumerate(self.children):
            if child.pid:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    child.pid = self.shared.rows[number]["pid"] = 0
                    yield number, os.waitstatus_to_exitcode(status)

    def _end(self) -> None:
        while any(child.pid for child in self.children):
            for number, status in self._ended():
                if status and self.shared.rows[number]["ready"]:
                    self.failed.append(f"worker {number + 1} {_how(status)}")
            time.sleep(LOOK)

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[None]:
        """Handle signals: the first one stops all workers, a second one kills them.

        A worker that is still opening its model ends at once.
        """
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
        if self.failed:
            problem = f"{', '.join(self.failed)} while the server stopped: what it had accepted is lost"
            raise RunError("serve", problem, f"{many(len(self.children), 'worker')} that end by themselves")


def _how(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
