"""uvicorn's server with a graceful stop: accepted requests are answered, and the exit status is 0.

TERM  ->  refuse new requests, close each connection after its answer  ->  after GRACE no new connections  ->
answer the requests in progress, and those that idle connections send for LAST seconds  ->  end
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

GRACE = 0.25  # seconds for clients to notice the stop, and again to accept the last connections
LAST = 2.0  # seconds in which an idle connection may still send a request
SO_ATTACH_FILTER = 26  # not defined in Python
NO_SYN = (  # classic BPF on a TCP packet: (operation, if true, if false, value)
    (0x30, 0, 0, 13),  # load the byte with its flags
    (0x45, 0, 1, 0x02),  # is it a SYN?
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFFFFFF),
)


class GracefulServer(uvicorn.Server):
    """A server that answers accepted requests before it stops."""

    closing = False
    worker: Worker | None = None  # this process, if there are several
    tick: Callable[[int], None] = staticmethod(lambda connections: None)  # called a few times a second

    @staticmethod
    def of(
        make: Callable[[Callable[[], bool]], Starlette], limits: ConnectionLimits, worker: Worker | None = None
    ) -> GracefulServer:
        """Return a server of the application that `make` builds. Its argument returns whether the server stops."""
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
                backlog=1 if worker else 2_048,  # connections accepted at once
            )
        )
        server.worker = worker
        limits.raise_open_files()
        limits.metrics.gauges["connections"] = lambda: len(server.server_state.connections)
        return server

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle stop signals without raising them again.

        A second signal ends the server at once, except in a worker process, which its parent kills.
        """
        numbers = [signal.SIGTERM] if self.worker else [signal.SIGTERM, signal.SIGINT]
        if threading.current_thread() is not threading.main_thread():
            numbers = []
        former = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
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
        """Stop gracefully, then let uvicorn close the port and the idle connections.

        uvicorn alone would close idle connections on which a client may be about to send a request.
        """
        if self.worker and not self.worker.stopping:  # only this worker ends: the others accept new connections
            self.worker.leave()
            for port in self.servers:
                port.close()
            self.closing = True
        else:
            self.closing = True
            await self._wait(GRACE)
            for port in self.servers:
                for listener in port.sockets:
                    refuse_connections(listener)
            await self._wait(GRACE)
        await self._wait(LAST, self._any_idle)
        await super().shutdown(sockets)

    def _any_idle(self) -> bool:
        return any(isinstance(client, PatientProtocol) and client.idle for client in self.server_state.connections)

    async def _wait(self, seconds: float, condition: Callable[[], bool] = lambda: True) -> None:
        """Wait while `condition` holds, for at most `seconds`; a second signal ends the wait."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while condition() and not self.force_exit and (remaining := end - loop.time()) > 0:
            await asyncio.sleep(min(0.05, remaining))


def refuse_connections(listener: socket.socket) -> None:
    """Drop new connections at the port.

    Connections that the system has accepted already can still be served; closing the port would reset them.
    """
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in NO_SYN))
    program = struct.pack("HP", len(NO_SYN), ctypes.addressof(code))
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
    except OSError as error:  # for example, an emulated Linux
        say(f"connections made while the port closes may be lost: {error.strerror}")
