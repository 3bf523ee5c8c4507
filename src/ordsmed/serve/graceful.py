"""Graceful: uvicorn's server, but at a signal it first lets clients with open connections know, and ends with status 0.

TERM  ->  closing: new requests are refused, answers close their connection  ->  GRACE  ->  no connection begins  ->
those that began are answered; silent ones may ask until LAST  ->  those under way are answered  ->  end
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from ordsmed.base.say import say
from ordsmed.serve.connections import ConnectionLimits, PatientProtocol
from ordsmed.serve.workers import Worker

GRACE = 0.25  # seconds in which clients hear that the server stops; and again, in which the last connections are taken
LAST = 2.0  # seconds in which a connection on which nothing is asked may still ask, and is answered
SO_ATTACH_FILTER = 26  # which Python has no name for
NO_SYN = (  # of the classic BPF, of a TCP packet: (operation, if true, if false, value)
    (0x30, 0, 0, 13),  # the byte of its flags
    (0x45, 0, 1, 0x02),  # does it begin a connection?
    (0x06, 0, 0, 0),  # then it is dropped
    (0x06, 0, 0, 0xFFFFFFFF),
)


class GracefulServer(uvicorn.Server):
    """Runs until it is asked to stop."""

    closing = False
    worker: Worker | None = None  # of several processes
    tick: Callable[[int], None] = staticmethod(lambda connections: None)  # is told, some times a second, how many

    @staticmethod
    def of(
        make: Callable[[Callable[[], bool]], Starlette], limits: ConnectionLimits, worker: Worker | None = None
    ) -> GracefulServer:
        """`make` is given what says whether the server stops, and gives the application."""
        server: GracefulServer
        app = make(lambda: server.closing)
        server = GracefulServer(
            uvicorn.Config(
                app,
                http=partial(PatientProtocol, limits=limits),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                backlog=1 if worker else 2_048,  # so many connections are taken at once
            )
        )
        server.worker = worker
        limits.raise_open_files()
        limits.metrics.gauges["connections"] = lambda: len(server.server_state.connections)
        return server

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal is no error here; a second one ends at once, but a worker, which its parent ends then."""
        numbers = [signal.SIGTERM] if self.worker else [signal.SIGTERM, signal.SIGINT]
        if threading.current_thread() is not threading.main_thread():
            numbers = []
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.closing and not self.worker
        self.should_exit = True
        self.closing = self.worker is None or self.worker.stopping

    async def on_tick(self, counter: int) -> bool:
        self.tick(len(self.server_state.connections))
        if self.worker and self.worker.stopping:
            self.closing = self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's closes the port and all silent connections: here none of them is about to ask."""
        if self.worker and not self.worker.stopping:  # it alone ends: others take what comes
            self.worker.leave()
            for port in self.servers:
                port.close()
            self.closing = True
        else:
            self.closing = True
            await self._wait(GRACE)
            for port in self.servers:
                for listener in port.sockets:
                    begin_none(listener)
            await self._wait(GRACE)
        await self._wait(LAST, self._any_silent)
        await super().shutdown(sockets)

    def _any_silent(self) -> bool:
        return any(isinstance(client, PatientProtocol) and client.silent for client in self.server_state.connections)

    async def _wait(self, seconds: float, condition: Callable[[], bool] = lambda: True) -> None:
        """While that is so, and no second signal has come."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while condition() and not self.force_exit and (left := end - loop.time()) > 0:
            await asyncio.sleep(min(0.05, left))


def begin_none(listener: socket.socket) -> None:
    """From now on no client connects; those that have can still be taken, which closing would reset."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in NO_SYN))
    program = struct.pack("HP", len(NO_SYN), ctypes.addressof(code))
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError as error:  # systems that only look like Linux
        say(f"connections that begin while the port is closed may be lost: {error.strerror}")
