"""Limits on open connections, and on the request heads that are accepted.

a new connection  ->  too many from its address, or in total: close the one that was silent for longest
                  ->  none is silent: the new one gets answers at /health only, and 503 with Retry-After elsewhere
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
from collections import Counter
from dataclasses import dataclass, field

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from ordsmed.serve.metrics import ServerMetrics

HEADERS = 20.0  # seconds that a connection has to send the head of a request
LINGER = 2.0  # seconds for which the rest of a request is read after its answer
FILES = 256  # open files that a server needs besides its connections


@dataclass
class ConnectionLimits:
    """The limits on a process's connections, and the connections it has."""

    total: int = 1_000
    by_address: int = 500
    spare: int = 50  # above the total, restricted to /health while all others are busy
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    fresh: dict[PatientProtocol, None] = field(
        default_factory=dict
    )  # connections without an answered request so far, oldest first
    answered: dict[PatientProtocol, None] = field(default_factory=dict)  # others, ordered by their last answer
    addresses: Counter[str] = field(default_factory=Counter)  # of both

    def add(self, connection: PatientProtocol) -> None:
        """Add a connection. If there are too many, close the longest silent one, or restrict the new one."""
        self.fresh[connection] = None
        self.addresses[connection.address] += 1
        while reason := self._too_many(connection.address):
            if silent := self._longest_silent(connection, connection.address if reason == "address" else ""):
                silent.end(reason)
                continue
            if self.count > self.total + self.spare:
                connection.end("refused")
            else:
                connection.app_state = {"crowded": True}
                self.metrics.add_closed("busy")
            return

    @property
    def count(self) -> int:
        return len(self.fresh) + len(self.answered)

    def _too_many(self, address: str) -> str:
        return "address" if self.addresses[address] > self.by_address else "total" if self.count > self.total else ""

    def drop(self, connection: PatientProtocol) -> bool:
        """Remove a connection; return whether it was counted."""
        known = connection in self.fresh or connection in self.answered
        self.fresh.pop(connection, None)
        self.answered.pop(connection, None)
        self.addresses[connection.address] -= known
        if not self.addresses[connection.address]:
            del self.addresses[connection.address]
        return known

    def _longest_silent(self, new: PatientProtocol, address: str = "") -> PatientProtocol | None:
        silent = (known for known in itertools.chain(self.fresh, self.answered) if known.silent and known is not new)
        return next((known for known in silent if address in ("", known.address)), None)

    def raise_open_files(self) -> None:
        """Raise the process's limit of open files. If that is not enough, lower the total."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.total + self.spare + FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            self.total = max(1, min(self.total, soft - self.spare - FILES))


class StrictBuffer(ReceiveBuffer):
    """A buffer that refuses heads which another server on the way may parse as other requests (request smuggling).

    h11 itself refuses conflicting Content-Length, transfer codings other than chunked, and malformed chunk sizes.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines = super().maybe_extract_lines()
        if lines is not None:
            head = before[: len(before) - len(self)]
            names = {bytes(line.partition(b":")[0]).strip().lower() for line in lines}
            if head.count(b"\n") != head.count(b"\r\n"):
                raise h11.LocalProtocolError("a line that ends without CR")
            if any(line[:1] in (b" ", b"\t") for line in lines):
                raise h11.LocalProtocolError("a header on several lines")
            if b"transfer-encoding" in names and (b"content-length" in names or lines[0].endswith(b"HTTP/1.0")):
                raise h11.LocalProtocolError("Transfer-Encoding with Content-Length or HTTP/1.0")
        return lines


class PoliteTransport:
    """A transport that reads the rest of a request for a while after it is closed.

    If unread data were left, the system would reset the connection and the client might lose the answer.
    """

    def __init__(self, transport: asyncio.Transport, conn: h11.Connection) -> None:
        self._transport, self._conn = transport, conn
        self.lingers = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self.lingers or self._transport.is_closing()

    def close(self) -> None:
        if self._conn.their_state is not h11.SEND_BODY:
            self._transport.close()
        elif not self.is_closing():
            self.lingers = True
            self._transport.write_eof()
            self._transport.resume_reading()
            asyncio.get_running_loop().call_later(LINGER, self._transport.close)


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with time limits for slow clients."""

    def __init__(self, *args: object, limits: ConnectionLimits, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.limits = limits
        self.conn._receive_buffer = StrictBuffer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(PoliteTransport(transport, self.conn))  # type: ignore[arg-type]
        self._watch = self.loop.call_later(HEADERS, self._look)
        self.limits.add(self)

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def end(self, reason: str) -> None:
        self.limits.metrics.add_closed(reason)
        self.limits.drop(self)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP. If an answer has begun, only close the connection."""
        self.limits.metrics.add_closed("invalid")
        with contextlib.suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        self.limits.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def on_response_complete(self) -> None:
        if self.limits.drop(self) and not self.transport.is_closing():
            self.limits.answered[self] = None
            self.limits.addresses[self.address] += 1
        super().on_response_complete()

    @property
    def silent(self) -> bool:
        """Return whether no request is in progress on it."""
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """Close a connection without a request so far, or with an incomplete head waiting."""
        if self.cycle is None or (self.cycle.response_complete and self.conn.trailing_data[0]):
            self.end("slow")
        else:
            self._watch = self.loop.call_later(HEADERS, self._look)
