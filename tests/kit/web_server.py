"""A small web server on 127.0.0.1 for tests, that can be as bad as the real ones.

with serving({"/a": b"text", "/b": [Answer(status=503), b"then this"]}) as server:
    server.url("/a"), server.asked[0].path, server.asked[0].headers["Range"], server.count("/a")

A page is bytes, an `Answer`, a list of pages (one a request, the last one stays) or a function from a `Request` to
a page. Pages stand under their path with its query, or, for a proxy, under a whole address.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What a page answers, and how badly."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None  # so many bytes of the body are sent, then it hangs up
    hold: bool = False  # ... or rather says nothing more until the server ends
    wait: float = 0.0  # seconds before anything is sent
    drip: float = 0.0  # seconds before each single byte of the body
    raw: bytes | None = None  # sent instead of any HTTP
    ranges: bool = True  # honours Range and If-Range


@dataclass
class Request:
    """What was asked for."""

    path: str
    headers: Message  # case-insensitive


Page = bytes | Answer | list[Any] | Callable[[Request], Any]


class Server:
    """`pages` may be changed at any time; `asked` holds every request in order."""

    def __init__(self, pages: Mapping[str, Page], certificate: str | None) -> None:
        self.pages: dict[str, Page] = dict(pages)
        self.asked: list[Request] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_of_test": self}))
        self._http.daemon_threads = True
        self._scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
            self._scheme = "https"
        self.port = self._http.server_address[1]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """The address of a page."""
        return f"{self._scheme}://{host}:{self.port}{path}"

    def count(self, path: str) -> int:
        """How often a page was asked for."""
        return sum(request.path == path for request in self.asked)

    def page(self, request: Request) -> Answer:
        """Note a request, and find what it gets."""
        with self._lock:
            self.asked.append(request)
            page: Any = self.pages.get(request.path, Answer(b"no such page", 404))
            if isinstance(page, list):
                page = page.pop(0) if len(page) > 1 else page[0]
        while callable(page):
            page = page(request)
        return Answer(page) if isinstance(page, bytes) else page


@contextlib.contextmanager
def serving(pages: Mapping[str, Page] | None = None, *, certificate: str | None = None) -> Iterator[Server]:
    """A server until the end of the block; with a file of a certificate and its key it speaks TLS."""
    server = Server(pages or {}, certificate)
    thread = threading.Thread(target=server._http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()  # whoever hangs or drips stops
        server._http.shutdown()
        server._http.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_of_test: Server

    def do_GET(self) -> None:
        answer = self.server_of_test.page(Request(self.path, self.headers))
        with contextlib.suppress(OSError):  # the other side may hang up first
            self.server_of_test.closing.wait(answer.wait)
            if answer.raw is not None:
                self.wfile.write(answer.raw)
            else:
                self._send(answer)

    def _send(self, answer: Answer) -> None:
        status, body, headers = answer.status, answer.body, dict(answer.headers)
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        if status == 200 and answer.ranges:
            tag = headers.setdefault("ETag", f'"{hashlib.sha256(body).hexdigest()[:12]}"')
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            if asked and self.headers.get("If-Range", tag) in (tag, headers.get("Last-Modified")):
                start = int(asked[1])
                status, headers["Content-Range"] = 206, f"bytes {start}-{len(body) - 1}/{len(body)}"
                if start >= len(body):
                    status, headers["Content-Range"] = 416, f"bytes */{len(body)}"
                body = body[start:]
        if "Transfer-Encoding" not in headers:  # else the body is chunks already
            headers.setdefault("Content-Length", str(len(body)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._body(body if answer.cut is None else body[: answer.cut], answer.drip)
        if answer.hold:
            self.server_of_test.closing.wait()

    def _body(self, body: bytes, drip: float) -> None:
        pieces = [body[i : i + 1] for i in range(len(body))] if drip else [body]
        for piece in pieces:
            if drip and self.server_of_test.closing.wait(drip):
                return
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass
