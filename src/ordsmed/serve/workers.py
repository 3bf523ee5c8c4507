"""Worker processes that share a port: the parent listens and restarts workers that die; workers accept connections.

    parent: port, SharedMemory  --fork-->  worker 1: model, batcher, server     one queue of new connections
                                --fork-->  worker 2: ...                        shared: queue sizes, counts, reloads

All workers accept from one queue of the operating system, so a worker that dies loses only the connections that it has
accepted. (With SO_REUSEPORT each worker has a queue, which is lost with the worker, and the system assigns connections
by a hash, not to the least busy worker.)
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

CHECK = 0.05  # seconds between two checks of the workers
LEAD = 0.001  # seconds that a busier worker waits before it accepts, so that others accept first
SOON = 10.0  # seconds: a worker that dies sooner is restarted with a growing delay
LONGEST = 30.0  # maximum of that delay in seconds
HUNG = 60  # seconds without a tick after which a worker is killed


@dataclass(frozen=True)
class Worker:
    """A worker process, with access to the shared memory."""

    shared: SharedMemory
    number: int
    parent: int
    first: bool  # whether this worker prints the served models

    @property
    def row(self) -> SharedPart:
        return self.shared.rows[self.number]

    @property
    def others(self) -> list[SharedPart]:
        return [row for number, row in enumerate(self.shared.rows) if number != self.number and row["pid"]]

    @property
    def stopping(self) -> bool:
        """Whether the whole server is stopping, not only this worker."""
        return bool(self.shared["stop"]) or os.getppid() != self.parent

    def leave(self) -> None:
        """Stop ticking, so that the parent does not kill this worker while it finishes its requests."""
        self.row["ticked"] = 0

    def waiting_elsewhere(self, waiting: int) -> int:
        """Publish the number of items waiting here; return the number waiting in other workers."""
        self.row["waiting"] = waiting
        return sum(row["waiting"] for row in self.others)

    def is_busier(self) -> bool:
        """Return whether some other ready worker has fewer connections."""
        return any(row["ready"] and row["connections"] < self.row["connections"] for row in self.others)

    def tick(self, connections: int, models: ServedModels, batcher: Batcher) -> None:
        """Publish this worker's numbers and start a requested reload. The server calls this a few times a second."""
        self.row["connections"], self.row["computing"], self.row["ready"] = connections, batcher.computing, 1
        self.row["ticked"] = int(time.monotonic())
        if self.row["reloading"] < (reload_number := self.shared["reload"]):
            self.row["reloading"] = reload_number
            asyncio.get_running_loop().create_task(self._reload(models, reload_number))

    async def _reload(self, models: ServedModels, reload_number: int) -> None:
        """Reload the models of this worker. Write an error to shared memory, for the worker that got the request."""
        parts: list[str] = []
        try:
            await asyncio.to_thread(models.reload)
        except Refusal as refusal:
            parts = [refusal.problem, refusal.wanted, refusal.remedy, refusal.place]
        except Exception:
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            parts = ["an error in the server; see its log", "", "", ""]
        self.row.write("problem", msgspec.json.encode(parts))
        self.row["reloaded"] = reload_number

    async def reload(self) -> None:
        """Reload the models of all workers and wait for them. Refuse if one of them fails."""
        reload_number = self.shared["reload"] = self.shared["reload"] + 1
        while any(row["reloaded"] < reload_number for row in (self.row, *self.others)):
            if self.stopping:
                raise Refusal("closing", "the server is stopping")
            await asyncio.sleep(CHECK)
        rows = [self.row, *self.others]
        problems = [parts for row in rows if (parts := msgspec.json.decode(row.read("problem") or b"[]"))]
        if problems:
            problem, *details = problems[0]
            count = f"{len(problems)} of {many(len(rows), 'worker')}: " if len(problems) < len(rows) else ""
            raise Refusal("cannot", count + problem, *details)

    def listener(self, port: socket.socket) -> SharedListener:
        listener = SharedListener(fileno=os.dup(port.fileno()))
        listener.worker = self
        listener.setblocking(False)
        return listener


class SharedListener(socket.socket):
    """The shared port. A worker that is busier than others lets them accept first."""

    worker: Worker

    def accept(self) -> tuple[socket.socket, object]:
        if self.worker.is_busier():
            time.sleep(LEAD)
        accepted = super().accept()
        self.worker.row["connections"] += 1  # until the next tick counts them
        return accepted

    def listen(self, backlog: int = 0, /) -> None:
        """Do nothing, because the parent listens already."""


@dataclass
class Child:
    pid: int = 0
    started: float = 0.0
    due: float = 0.0  # time of the next start
    wait: float = 0.0  # seconds from its end to `due`, doubled each time it ends soon after its start
    ticked: int = 0  # time of its last tick, in its own clock
    tick_seen: float = 0.0  # when the parent saw `ticked` change

    def delay(self, seconds: float) -> None:
        """Set the time of the next start: in `seconds`, but at most LONGEST."""
        self.wait = min(seconds, LONGEST)
        self.due = time.monotonic() + self.wait


@dataclass
class WorkerKeeper:
    """The parent: starts, watches and ends the workers."""

    shared: SharedMemory
    children: list[Child] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)  # descriptions of workers that failed while the server stopped
    checked: float = 0.0  # time of the last check for ticks

    def run(self, ready: Callable[[], None]) -> Worker | None:
        """Start the workers. Return the worker in each worker process, and None in the parent after all have ended.

        Call `ready` when all workers are ready. The first one starts alone, so that an error is printed only once.
        """
        self.children = [Child() for _ in self.shared.rows]
        with self._handling_signals():
            for group in ([0], [*range(1, len(self.children))]):
                for number in group:
                    if worker := self._start(number, first=number == 0):
                        return worker
                while not self.shared["stop"] and not all(self.shared.rows[number]["ready"] for number in group):
                    if worker := self._restart_ended(started=group != [0]):
                        return worker
            if not self.shared["stop"]:
                ready()
            while not self.shared["stop"]:
                if worker := self._restart_ended():
                    return worker
            self._wait_for_all()
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
            if not child.started:  # during startup this is an error
                raise
            child.delay(max(1.0, 2 * child.wait))
            say(f"worker {number + 1} cannot be started ({error.strerror}); next attempt in {child.wait:g} s")
            return None
        if pid == 0:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent forwards it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            row["pid"] = os.getpid()
            return Worker(self.shared, number, parent, first)
        row["pid"] = pid
        child.pid, child.started = pid, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        return None

    def _restart_ended(self, *, started: bool = True) -> Worker | None:
        """Restart workers that have died, when they are due. If a worker dies while `started` is false, exit."""
        time.sleep(CHECK)
        self._kill_hung()
        for number, status in self._reap():
            if self.shared["stop"]:
                return None
            if not started:
                raise SystemExit(status if status > 0 else 1)  # the worker has printed the reason
            child = self.children[number]
            alive = time.monotonic() - child.started
            child.delay(0.0 if alive > SOON else max(1.0, 2 * child.wait))
            when = f"in {child.wait:g} s" if child.wait else "now"
            say(f"worker {number + 1} {_ending(status)} after {alive:.0f} s; it restarts {when}")
        for number, child in enumerate(self.children):
            due = not child.pid and child.started and time.monotonic() >= child.due and not self.shared["stop"]
            if due and (worker := self._start(number)):
                return worker
        return None

    def _kill_hung(self) -> None:
        """Kill workers that have not ticked for HUNG seconds: their connections would wait forever.

        If the parent was suspended too (Ctrl-Z, a sleeping machine), restart the time of all workers.
        """
        now = time.monotonic()
        paused, self.checked = now - self.checked > SOON, now
        for number, (child, row) in enumerate(zip(self.children, self.shared.rows, strict=True)):
            if paused or row["ticked"] != child.ticked:
                child.ticked, child.tick_seen = row["ticked"], now
            elif child.pid and child.ticked and now - child.tick_seen > HUNG:
                row["ticked"] = 0
                say(f"worker {number + 1} hangs: it has not responded for {now - child.tick_seen:.0f} s; it is killed")
                os.kill(child.pid, signal.SIGKILL)

    def _reap(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each worker that has ended, and its exit status, or the negative number of its signal."""
        for number, child in enumerate(self.children):
            if child.pid:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid:
                    child.pid = self.shared.rows[number]["pid"] = 0
                    yield number, os.waitstatus_to_exitcode(status)

    def _wait_for_all(self) -> None:
        while any(child.pid for child in self.children):
            for number, status in self._reap():
                if status and self.shared.rows[number]["ready"]:
                    self.failed.append(f"worker {number + 1} {_ending(status)}")
            time.sleep(CHECK)

    @contextlib.contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Handle signals: the first one stops all workers, and a second one kills them."""
        process = os.getpid()

        def handle(number: int, frame: FrameType | None) -> None:
            stopping, self.shared["stop"] = self.shared["stop"], 1
            for child in self.children:
                if child.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGKILL if stopping else signal.SIGTERM)

        former = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            if os.getpid() == process:
                for number, handler in former.items():
                    signal.signal(number, handler)

    def check(self) -> None:
        if self.failed:
            problem = f"{', '.join(self.failed)} while the server stopped; its accepted requests are lost"
            raise RunError("serve", problem, f"{many(len(self.children), 'worker')} that stop without an error")


def _ending(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
