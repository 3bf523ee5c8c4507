"""Limits on open connections, and on the request heads that are accepted.

too many connections, in total or from an address  ->  close the one that has been idle for longest
                                         none is idle  ->  answer the new one at /health only, elsewhere with 503
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

HEADERS = 20.0  # seconds within which a connection must send the head of a request
LINGER = 2.0  # seconds for which the rest of a request is read after its answer
FILES = 256  # open files that a server needs in addition to its connections


@dataclass
class ConnectionLimits:
    """The limits on the connections of a process, and its open connections."""

    total: int = 1_000
    by_address: int = 500
    spare: int = 50  # connections above the total, which get answers at /health only
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    fresh: dict[PatientProtocol, None] = field(
        default_factory=dict
    )  # connections without an answered request so far, oldest first
    answered: dict[PatientProtocol, None] = field(default_factory=dict)  # others, ordered by their last answer
    addresses: Counter[str] = field(default_factory=Counter)  # of both

    def add(self, connection: PatientProtocol) -> None:
        """Add a connection. If there are too many, close the one idle for longest, or restrict the new one."""
        self.fresh[connection] = None
        self.addresses[connection.address] += 1
        while reason := self._too_many(connection.address):
            if idle := self._longest_idle(connection, connection.address if reason == "address" else ""):
                idle.end(reason)
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

    def _longest_idle(self, new: PatientProtocol, address: str = "") -> PatientProtocol | None:
        idle = (known for known in itertools.chain(self.fresh, self.answered) if known.idle and known is not new)
        return next((known for known in idle if address in ("", known.address)), None)

    def raise_open_files(self) -> None:
        """Raise the process's limit of open files. If that is not enough, lower the total."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.total + self.spare + FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            self.total = max(1, min(self.total, soft - self.spare - FILES))


class StrictBuffer(ReceiveBuffer):
    """A buffer that refuses heads which a proxy may parse as other requests (request smuggling).

    h11 itself refuses conflicting Content-Length, transfer codings other than chunked, and malformed chunk sizes.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        content = bytes(self)
        lines = super().maybe_extract_lines()
        if lines is not None:
            head = content[: len(content) - len(self)]
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
        self._timer = self.loop.call_later(HEADERS, self._close_if_slow)
        self.limits.add(self)

    @property
    def address(self) -> str:
        return self.client[0] if self.client else ""

    def end(self, reason: str) -> None:
        self.limits.metrics.add_closed(reason)
        self.limits.drop(self)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP. If an answer has already started, only close the connection."""
        self.limits.metrics.add_closed("invalid")
        with contextlib.suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
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
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _close_if_slow(self) -> None:
        """Close the connection if it has sent no request, or only a part of the next one's head."""
        if self.cycle is None or (self.cycle.response_complete and self.conn.trailing_data[0]):
            self.end("slow")
        else:
            self._timer = self.loop.call_later(HEADERS, self._close_if_slow)
