"""One HTTP GET with limits on the hosts it connects to, the time it waits and the bytes it accepts.

    url -> allowed? -> name to addresses -> all public? -> connect to one of these -> head -> a redirect? again
                                                                                      -> Reply -> blocks of its body

Errors raise `Failed` with a short reason and whether a retry may help. A status such as 404 is an answer and is
returned. Private addresses are refused unless allowed, because a page may redirect to any address.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import errno
import functools
import http.client
import io
import ipaddress
import math
import socket
import ssl
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from ordsmed import __version__
from ordsmed.web.hosts import in_ascii

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

RETRYABLE = (408, 425, 429, 500, 502, 503, 504)  # statuses for which a retry may help
UNREACHED = (errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ECONNREFUSED)
BLOCK = 1 << 18
REDIRECTS = 8
SAFE = "%/:@!$&'()*+,;=~?"  # characters of a path or query that are not escaped
# headers that are not sent to another host after a redirect
SECRETS = ("authorization", "cookie", "proxy-authorization")
T = TypeVar("T")


class Failed(Exception):
    """An error: no complete answer arrived."""

    def __init__(self, reason: str, *, again: bool = False, wait: float | None = None, unreached: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again  # whether a retry may help
        self.wait = wait  # seconds until the retry, if the server says so
        self.unreached = unreached  # the network may be down


class Refused(Failed):
    """The address is not allowed, so no request is sent."""


class BadRedirect(Failed):
    """The redirects do not lead to an answer."""


class Reply:
    """Status, headers and body of an answer. `url` is the address after all redirects."""

    def __init__(self, url: str, answer: http.client.HTTPResponse, wire: _Wire) -> None:
        self.status, self.url, self.headers = answer.status, url, answer.headers
        self._answer, self._wire, self._length = answer, wire, answer.length

    def blocks(
        self, max_bytes: int | None = None, seconds: float | None = None, *, packed: bool = False
    ) -> Iterator[bytes]:
        """Yield the body, of at most `max_bytes` and within `seconds`, decompressed unless `packed`."""
        coding = "" if packed else (self.headers.get("Content-Encoding") or "").strip().lower()
        if max_bytes is not None and not coding and (self._length or 0) > max_bytes:
            raise Failed(f"longer than {max_bytes:,} bytes")
        if seconds is not None:
            self._wire.limit(seconds, Failed(f"took longer than {seconds:g} s"))
        total = 0
        for block in _unpacked(self._sent(), coding):
            total += len(block)
            if max_bytes is not None and total > max_bytes:
                raise Failed(f"longer than {max_bytes:,} bytes")
            yield block

    def failure(self) -> Failed:
        """Return an error for the status of this answer."""
        return Failed(
            f"HTTP {self.status}", again=self.status in RETRYABLE, wait=_wait(self.headers.get("Retry-After"))
        )

    def close(self) -> None:
        self._answer.close()
        self._wire.close()

    def _sent(self) -> Iterator[bytes]:
        """Yield the body as it was sent: up to its Content-Length, the last chunk, or the end of the connection."""
        read = 0
        while self._length is None or read < self._length:
            with _network_errors():
                block = self._answer.read1(BLOCK if self._length is None else min(BLOCK, self._length - read))
            if not block:
                break
            read += len(block)
            yield block
        if self._length is not None and read < self._length:
            raise Failed("answer was cut off", again=True)


@contextlib.contextmanager
def get(
    url: str,
    *,
    headers: Mapping[str, str] = {},
    timeout: float = 30.0,
    private: bool = False,
    hop: Callable[[str], None] | None = None,
) -> Iterator[Reply]:
    """Send a GET request: `with get(url) as reply: for block in reply.blocks(): ...`

    `timeout` (seconds) limits connecting, the whole head of the answer, and the wait for each next piece of the body.
    `hop` is called with the target of each redirect before its name is looked up; it may raise an error to stop.
    """
    reply = _follow(url, headers, timeout, private, hop)
    with contextlib.closing(reply):
        yield reply


def retry(
    attempts: int, act: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep, longest: float = 60.0
) -> T:
    """Call `act` until it succeeds, at most `attempts` times.

    Wait 1, 2, 4, ... seconds, or as long as the server says, but at most `longest` seconds.
    """
    for number in range(attempts - 1):
        try:
            return act()
        except Failed as error:
            if not error.again:
                raise
            sleep(min(2.0**number if error.wait is None else error.wait, longest))
    return act()


def _follow(
    url: str, headers: Mapping[str, str], timeout: float, private: bool, hop: Callable[[str], None] | None
) -> Reply:
    seen: set[str] = set()
    headers = {"User-Agent": f"ordsmed/{__version__}", "Accept": "*/*", "Accept-Encoding": "identity", **headers}
    while True:
        location = _split(url)
        seen.add(location.geturl())
        with _network_errors():
            reply = _request(location, headers, timeout, private)
        if reply.status not in (301, 302, 303, 307, 308):
            return reply
        reply.close()
        target = _target(location, reply.headers.get("Location"))
        if target in seen:
            raise BadRedirect("redirects in a circle")
        if len(seen) > REDIRECTS:
            raise BadRedirect(f"more than {REDIRECTS} redirects")
        if hop:
            hop(target)
        if urlsplit(target).netloc != location.netloc:
            headers = {name: value for name, value in headers.items() if name.lower() not in SECRETS}
        url = target


def _target(base: SplitResult, location: str | None) -> str:
    if not location:
        raise BadRedirect("bad redirect")
    try:
        text = location.encode("latin-1").decode("utf-8", "replace")  # http.client decodes headers as latin-1
        return _split(urljoin(base.geturl(), text)).geturl()
    except Refused as error:
        raise Refused(f"redirect to {error.reason}") from None
    except (Failed, ValueError):
        raise BadRedirect("bad redirect") from None


def _split(url: str) -> SplitResult:
    """Split an address into the parts to send, in ASCII and without the fragment."""
    try:
        parts = urlsplit(url.strip())
        host, port = in_ascii(parts.hostname or ""), parts.port
        path, query = quote(parts.path or "/", safe=SAFE), quote(parts.query, safe=SAFE)
    except ValueError:
        raise Failed("bad address") from None
    if parts.scheme not in ("http", "https"):
        raise Refused("an address that is neither http nor https")
    if parts.username is not None or parts.password is not None:
        raise Refused("an address with a user name or password in it")
    if not host or not host.isprintable() or " " in host:
        raise Failed("bad address")
    is_default = port in (None, 443 if parts.scheme == "https" else 80)
    netloc = (f"[{host}]" if ":" in host else host) + ("" if is_default else f":{port}")
    return SplitResult(parts.scheme, netloc, path, query, "")


def _request(url: SplitResult, headers: Mapping[str, str], timeout: float, private: bool) -> Reply:
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    proxy = _proxy(url.scheme, host)
    if proxy is None:
        sock = _connect(_addresses(host, port, private), timeout)
    else:
        with contextlib.suppress(socket.gaierror):  # only the proxy may be able to look the name up
            _addresses(host, port, private)
        sock = _connected(proxy, timeout)
    target = url.path + (f"?{url.query}" if url.query else "")
    fields = {"Host": url.netloc, "Connection": "close", **headers}
    try:
        if url.scheme == "https":
            if proxy is not None:
                _tunnel(sock, f"{url.netloc}{'' if url.port else ':443'}", proxy, timeout)
            sock = _trust().wrap_socket(sock, server_hostname=host)
        elif proxy is not None:
            target, fields = url.geturl(), {**fields, **_password(proxy)}
        sock.sendall(_head(f"GET {target} HTTP/1.1", fields))
        wire = _Wire(sock)
        return Reply(url.geturl(), _answer(wire, timeout), wire)
    except BaseException:
        sock.close()
        raise


def _answer(wire: _Wire, timeout: float) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(wire, method="GET")  # type: ignore[arg-type]  # it only calls makefile
    wire.timeout = timeout
    wire.limit(timeout, Failed("timed out", again=True))
    answer.begin()
    wire.limit(math.inf, Failed("timed out", again=True))
    return answer


def _head(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers.items())]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("found a header with a line end")
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")


def _connected(proxy: SplitResult, timeout: float) -> socket.socket:
    try:
        return _connect(_addresses(proxy.hostname or "", proxy.port or 80, True), timeout)
    except OSError as error:
        failure = _failure(error)
        raise Failed(f"the proxy {proxy.hostname}: {failure.reason}", again=failure.again, unreached=True) from None


def _tunnel(sock: socket.socket, target: str, proxy: SplitResult, timeout: float) -> None:
    sock.sendall(_head(f"CONNECT {target} HTTP/1.1", {"Host": target, **_password(proxy)}))
    answer = _answer(_Wire(sock), timeout)
    if answer.status != 200:
        raise Failed(f"the proxy answered HTTP {answer.status}", again=answer.status in RETRYABLE)


def _proxy(scheme: str, host: str) -> SplitResult | None:
    proxy = urllib.request.getproxies().get(scheme)
    if not proxy or urllib.request.proxy_bypass(host):
        return None
    try:
        location = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        known = location.scheme == "http" and bool(location.hostname) and location.port != 0
    except ValueError:
        known = False
    if not known:
        raise Failed(f"{scheme}_proxy is not an http:// address")
    return location


def _password(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _addresses(host: str, port: int, private: bool) -> list[Any]:
    """Return the addresses of a host. Refuse the host if one of them is private."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not private:
        for *_, location in addresses:
            address = ipaddress.ip_address(str(location[0]).partition("%")[0])
            if not public(address):
                raise Refused(f"private address {address}")
    return addresses


def public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is on the public internet. IPv6 addresses that contain an IPv4 one count as it."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in ipaddress.ip_network("64:ff9b::/96"):  # NAT64: the network translates it to IPv4
            inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(inner):
            return all(public(address_inside) for address_inside in inner if address_inside is not None)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _connect(addresses: list[Any], timeout: float) -> socket.socket:
    """Connect to the first of these addresses that accepts, within `timeout` seconds in total."""
    last: OSError = TimeoutError()
    for family, kind, protocol, _, location in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout / len(addresses))
            sock.connect(location)
            sock.settimeout(timeout)
            return sock
        except OSError as error:
            sock.close()
            last = error
    raise last


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Wire(io.RawIOBase):
    """A readable stream over a socket, with a `timeout` in seconds for each read, and a time limit for all reads."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.timeout = sock, math.inf

    def limit(self, seconds: float, error: Failed) -> None:
        """Make reads raise `error` when `seconds` from now have passed."""
        self.end, self.late = time.monotonic() + seconds, error

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 1 << 16)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        remaining = self.end - time.monotonic()
        try:
            if remaining <= 0:
                raise TimeoutError
            self.sock.settimeout(min(self.timeout, remaining))
            return self.sock.recv_into(buffer)
        except TimeoutError:
            if remaining <= self.timeout:
                raise self.late from None
            raise

    def close(self) -> None:
        self.sock.close()
        super().close()


def _unpacked(blocks: Iterator[bytes], coding: str) -> Iterator[bytes]:
    if coding in ("", "identity"):
        return blocks
    if coding in ("gzip", "x-gzip", "deflate"):
        return _inflated(blocks, deflate=coding == "deflate")
    raise Failed(f"Content-Encoding {coding[:20]} was not requested")


def _inflated(blocks: Iterator[bytes], deflate: bool) -> Iterator[bytes]:
    """Yield decompressed blocks of gzip data (any number of members) or deflate data (zlib's header is optional)."""
    member: zlib._Decompress | None = None
    started = False
    for block in blocks:
        while block or member:
            if member is None:
                if started and (deflate or block[0] != 0x1F):  # padding after the end
                    return
                started, member = True, zlib.decompressobj(31 if not deflate else 15 if block[0] & 15 == 8 else -15)
            try:
                unpacked = member.decompress(block, BLOCK)
            except zlib.error:
                raise Failed("bad compressed data") from None
            if unpacked:
                yield unpacked
            if member.eof:
                block, member = member.unused_data, None
            else:
                block = member.unconsumed_tail
                if not block and len(unpacked) < BLOCK:
                    break
    if member is not None:
        raise Failed("answer was cut off", again=True)


@contextlib.contextmanager
def _network_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise _failure(error) from None


def _failure(error: Exception) -> Failed:
    match error:
        case ssl.SSLCertVerificationError():
            return Failed(f"certificate not trusted: {error.verify_message}")
        case ssl.SSLError():
            return Failed(f"TLS failed: {getattr(error, 'reason', None) or error}", again=True)
        case socket.gaierror():
            return Failed("no such host", again=error.errno == socket.EAI_AGAIN, unreached=True)
        case TimeoutError():
            return Failed("timed out", again=True)
        case http.client.RemoteDisconnected() | http.client.IncompleteRead():
            return Failed("answer was cut off", again=True)
        case http.client.HTTPException():
            return Failed("garbage instead of HTTP")
        case OSError():
            return Failed((error.strerror or str(error)).lower(), again=True, unreached=error.errno in UNREACHED)
    return Failed("bad address")


def _wait(after: str | None) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date."""
    if not after:
        return None
    if after.strip().isdecimal():
        return float(after)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
