"""Graceful: uvicorn's server, but at a signal it first lets clients with open connections know, and ends with status 0.

TERM  ->  closing: new requests are refused, answers close their connection  ->  GRACE  ->  the port is closed  ->
GRACE: connections that came just before are answered  ->  those under way are answered  ->  end
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

GRACE = 0.25  # seconds in which clients that keep their connection open hear that the server stops
HEADERS = 20.0  # seconds in which a connection has to send the head of a request


class PatientProtocol(H11Protocol):
    """HTTP/1.1 of a client that may be slow, but not for good."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch = self.loop.call_later(HEADERS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Who has begun no request by now, or has half a head waiting, is let go of."""
        if self.cycle is None or (self.cycle.response_complete and self.conn.trailing_data[0]):
            self.transport.close()
        else:
            self._watch = self.loop.call_later(HEADERS, self._look)


class GracefulServer(uvicorn.Server):
    """Runs until it is asked to stop."""

    closing = False

    @staticmethod
    def of(make: Callable[[Callable[[], bool]], Starlette], connections: int) -> GracefulServer:
        """`make` is given what says whether the server stops, and gives the application."""
        server: GracefulServer
        app = make(lambda: server.closing)
        server = GracefulServer(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                limit_concurrency=connections,
                server_header=False,
                timeout_keep_alive=75,
            )
        )
        return server

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal is no error here; a second one ends at once."""
        numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.closing:
            self.force_exit = True
            return
        self.closing = True
        asyncio.get_event_loop().call_soon_threadsafe(self._leave_later)

    def _leave_later(self) -> None:
        asyncio.get_running_loop().call_later(GRACE, self._close_port)

    def _close_port(self) -> None:
        for listener in self.servers:
            listener.close()
        asyncio.get_running_loop().call_later(GRACE, setattr, self, "should_exit", True)
