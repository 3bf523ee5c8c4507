"""One GET against a server that is as bad as the real ones: what comes back, what fails and why, what is refused."""

from __future__ import annotations

import errno
import gzip
import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from email.utils import formatdate
from http.client import BadStatusLine, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from kit.web_server import Answer, Server, serving
from ordsmed import __version__
from ordsmed.web import http
from ordsmed.web.hosts import in_ascii
from ordsmed.web.http import Failed, Refused, Reply, get, retry


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Write a certificate and key of a server named localhost, which is not trusted by default."""
    if not shutil.which("openssl"):
        pytest.skip("the command `openssl` is not installed")
    made = [tmp_path / "key.pem", tmp_path / "certificate.pem"]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            made[0],
            "-out",
            made[1],
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    path = tmp_path / "server.pem"
    path.write_text("".join(part.read_text() for part in made))
    return path


def read(url: str, *, longest: int | None = None, seconds: float | None = None, **asked: Any) -> bytes:
    with get(url, **{"private": True, "timeout": 5.0, **asked}) as reply:
        return b"".join(reply.blocks(longest, seconds))


def failure(url: str, **asked: Any) -> Failed:
    with pytest.raises(Failed) as caught:
        read(url, **asked)
    return caught.value


def test_an_answer_and_its_request(server: Server) -> None:
    server.pages = {"/a%20b/%C3%A6?q=%C3%B8": Answer(b"text", headers={"X-Kind": "plain"})}
    with get(server.url("/a b/æ?q=ø#part"), headers={"X-Mine": "1"}, private=True) as reply:
        assert (reply.status, reply.headers["x-kind"]) == (200, "plain")
        assert reply.url == server.url("/a%20b/%C3%A6?q=%C3%B8")
        assert list(reply.blocks()) == [b"text"]
    asked = server.asked[0].headers
    assert asked["User-Agent"] == f"ordsmed/{__version__}"
    assert (asked["X-Mine"], asked["Host"]) == ("1", f"127.0.0.1:{server.port}")
    with get(server.url("/none"), private=True) as reply:
        assert reply.status == 404
    with pytest.raises(ValueError, match="line end"):
        read(server.url("/"), headers={"X": "a\r\nHost: other"})


def test_large_and_empty_bodies(server: Server) -> None:
    large = bytes(range(256)) * 5000
    server.pages = {"/large": large, "/none": b"", "/open": Answer(raw=b"HTTP/1.0 200 OK\r\n\r\nto the end")}
    assert read(server.url("/large")) == large
    assert read(server.url("/none")) == b""
    assert read(server.url("/open")) == b"to the end"


def test_chunks(server: Server) -> None:
    chunked = {"Transfer-Encoding": "chunked"}
    server.pages["/whole"] = Answer(b"5\r\nhello\r\n2;x=y\r\n w\r\n0\r\nT: 1\r\n\r\n", headers=chunked)
    server.pages["/cut"] = Answer(b"5\r\nhello\r\n9\r\n w", headers=chunked)
    server.pages["/odd"] = Answer(b"hello\r\n", headers=chunked)
    assert read(server.url("/whole")) == b"hello w"
    assert [failure(server.url(path)).reason for path in ("/cut", "/odd")] == ["answer was cut off"] * 2


@pytest.mark.parametrize(
    ("answer", "reason", "again"),
    [
        (Answer(b"x" * 100, cut=10), "answer was cut off", True),
        (Answer(raw=b""), "answer was cut off", True),
        (Answer(b"x", wait=9), "timed out", True),
        (Answer(b"xxxx", drip=9), "timed out", True),
        (Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n"), "garbage instead of HTTP", False),
        (Answer(raw=bytes(range(128, 256)) * 900), "garbage instead of HTTP", False),
        (Answer(raw=b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200), "garbage instead of HTTP", False),
        (Answer(status=301), "bad redirect", False),
        (Answer(status=302, headers={"Location": "http://[::1"}), "bad redirect", False),
        (Answer(status=302, headers={"Location": "ftp://x.org/"}), "redirect to an address that is neither", False),
        (Answer(b"x", headers={"Content-Encoding": "br"}), "Content-Encoding br was not requested", False),
        (Answer(b"no gzip", headers={"Content-Encoding": "gzip"}), "bad compressed data", False),
    ],
)
def test_what_goes_wrong_has_a_reason(server: Server, answer: Answer, reason: str, again: bool) -> None:
    server.pages["/"] = answer
    error = failure(server.url("/"), timeout=0.15)
    assert error.reason.startswith(reason)
    assert error.again == again


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert failure(f"http://127.0.0.1:{taken.getsockname()[1]}/").reason == "connection refused"
    assert failure("http://no-such-host.invalid/").reason == "no such host"


def test_a_timeout_is_shared_out_over_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    closed: list[str] = []

    class Line:
        def __init__(self, *kind: Any) -> None:
            self.settimeout, self.place = waits.append, ""

        def connect(self, place: str) -> None:
            self.place = place
            if place != "open":
                raise TimeoutError(place)

        def close(self) -> None:
            closed.append(self.place)

    def connected(*places: str) -> Any:
        return http._connect([(0, 0, 0, "", place) for place in places], 8.0)

    monkeypatch.setattr(socket, "socket", Line)
    assert connected("one", "two", "open", "four").place == "open"
    assert waits == [2, 2, 2, 8]  # what is said over the line has all of it again
    waits.clear()
    with pytest.raises(TimeoutError, match="two"):
        connected("one", "two")
    assert waits == [4, 4]
    assert closed == ["one", "two"] * 2


def test_a_server_that_trickles_ends(server: Server) -> None:
    server.pages = {"/": Answer(b"x" * 1000, drip=0.05)}
    assert failure(server.url("/"), seconds=0.2).reason == "took longer than 0.2 s"
    head = b"HTTP/1.1 200 OK\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(Failed, match="timed out"):
        get_from(listening, head, 0.03)


def get_from(listening: socket.socket, head: bytes, pause: float) -> None:
    """Ask a server that sends its head byte by byte, each in time but never the last."""

    def trickle() -> None:
        line, _ = listening.accept()
        with line:
            try:
                for byte in head * 100:
                    line.sendall(bytes([byte]))
                    time.sleep(pause)
            except OSError:
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        read(f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout=0.2)
    finally:
        thread.join()


def test_encodings_are_undone_within_their_limit(server: Server) -> None:
    text = b"again and again " * 100_000
    raw = zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(text[:7]) + gzip.compress(text[7:]) + b"\0\0",
        "x-gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "Deflate": raw.compress(text) + raw.flush(),
        "identity": text,
    }
    for coding, body in bodies.items():
        server.pages[f"/{coding}"] = Answer(body, headers={"Content-Encoding": coding})
        assert read(server.url(f"/{coding}")) == text
        assert failure(server.url(f"/{coding}"), longest=len(text) - 1).reason == "longer than 1,599,999 bytes"
        assert read(server.url(f"/{coding}"), longest=len(text)) == text
    with get(server.url("/gzip"), private=True) as reply:
        assert b"".join(reply.blocks(packed=True)) == bodies["gzip"]
    server.pages["/cut"] = Answer(bodies["gzip"][:-100], headers={"Content-Encoding": "gzip"})
    assert failure(server.url("/cut")).again


def test_a_bomb_ends_at_its_limit(server: Server) -> None:
    server.pages["/"] = Answer(gzip.compress(bytes(50 << 20), 1), headers={"Content-Encoding": "gzip"})
    got: list[int] = []
    with get(server.url("/"), private=True) as reply, pytest.raises(Failed, match="longer"):
        got.extend(len(block) for block in reply.blocks(1 << 20))
    assert got == [http.BLOCK] * 4


def test_redirects(server: Server) -> None:
    def to(place: str) -> Answer:
        return Answer(status=302, headers={"Location": place})

    server.pages = {"/a": to("b/?x#y"), "/b/?x": to("../%C3%A6"), "/%C3%A6": b"there", "/loop": to("/pool")}
    server.pages |= {"/pool": to("/loop"), "/utf8": to("/æ".encode().decode("latin-1"))}
    server.pages |= {f"/{n}": to(f"/{n + 1}") for n in range(20)}
    assert read(server.url("/a")) == read(server.url("/utf8")) == b"there"
    assert failure(server.url("/loop")).reason == "redirects in a circle"
    assert failure(server.url("/0")).reason == "more than 8 redirects"
    assert server.count("/9") == 0
    server.pages |= {"/away": to(server.url("/%C3%A6", "localhost")), "/near": to("/%C3%A6")}
    for path, word in (("/near", "mine"), ("/away", None)):
        assert read(server.url(path), headers={"Authorization": "mine"}) == b"there"
        assert server.asked[-1].headers["Authorization"] == word


def test_each_hop_is_judged_before_it_is_gone_to(server: Server) -> None:
    ways = {"/a": "b?c d#e", "/b?c%20d": server.url("/f", "localhost"), "/out": "http://no-such-host.invalid"}
    server.pages = {path: Answer(status=307, headers={"Location": place}) for path, place in ways.items()}
    server.pages["/f"] = b"there"
    told: list[tuple[str, int]] = []

    def judge(target: str) -> None:
        told.append((target, len(server.asked)))
        if "invalid" in target:
            raise Refused("unwanted")

    assert read(server.url("/a"), hop=judge) == b"there"
    assert told == [(server.url("/b?c%20d"), 1), (server.url("/f", "localhost"), 2)]
    assert failure(server.url("/out"), hop=judge).reason == "unwanted"  # and not: no such host
    assert told[-1] == ("http://no-such-host.invalid/", 4)


PRIVATE = [
    "http://127.0.0.1/",
    "http://localhost/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.01/",
    "http://10.1.2.3/",
    "http://192.168.0.1:8080/",
    "http://169.254.169.254/latest/",
    "http://100.64.0.1/",
    "http://0/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::1]/",
    "http://[::]/",
    "http://[fe80::1]/",
    "http://[fd00::1]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[::127.0.0.1]/",
    "https://127.0.0.1/",
    "http://１２７.0.0.1/",
]


@pytest.mark.parametrize("url", PRIVATE)
def test_private_addresses_are_refused(url: str) -> None:
    with pytest.raises(Refused, match=r"^private address "), get(url):
        pass


def test_public_addresses_are_not() -> None:
    for text in ("8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"):
        assert http.public(ipaddress.ip_address(text))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_private_address_of_a_name_is_enough(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Otherwise the owner of a name could reach the private network by a second address, tried after the first."""
    found = ["8.8.8.8", "2606:4700::1111", "9.9.9.9"]
    found[at] = "10.0.0.1" if at != 1 else "::ffff:10.0.0.1"
    kinds = [socket.AF_INET6 if ":" in one else socket.AF_INET for one in found]
    answer = [(kind, socket.SOCK_STREAM, 6, "", (one, 80)) for kind, one in zip(kinds, found, strict=True)]
    connected: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    monkeypatch.setattr(http, "_connect", lambda addresses, timeout: connected.append(addresses))
    assert failure("http://mixed.test/", private=False).reason.startswith("private address ")
    assert connected == []


@pytest.mark.parametrize(
    "url",
    ["file:///etc/hosts", "ftp://x.org/", "x.org/a", "//x.org", "http://me@x.org/", "http://me:pw@x.org/", "data:,x"],
)
def test_other_addresses_are_refused(url: str) -> None:
    assert isinstance(failure(url), Refused)


@pytest.mark.parametrize(
    "url", ["http://", "http:///a", "http://a..b/", "http://[1::2/", "http://x:y/", f"http://{'a' * 64}.org/"]
)
def test_bad_addresses(url: str) -> None:
    assert failure(url).reason in ("bad address", "no such host")


@pytest.mark.parametrize("host", ["ü％2e.org", "ü..org", "ü￼.org", "é＜.org"])
def test_names_of_no_host(host: str) -> None:
    assert failure(f"http://{host}/").reason == "bad address"
    with pytest.raises(ValueError):
        in_ascii(host)


def test_every_hop_is_checked_on_the_address_that_is_connected_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`public.test` counts as a public name; redirects and second look-ups of it are not trusted."""
    real, asked = socket.getaddrinfo, []

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1" if host == "public.test" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(http, "public", lambda address: asked[-1] == "public.test" and asked.count("public.test") == 1)
    server.pages = {"/": b"here", "/in": Answer(status=302, headers={"Location": server.url("/")})}
    server.pages["/back"] = Answer(status=302, headers={"Location": server.url("/", "public.test")})
    assert read(server.url("/", "public.test"), private=False) == b"here"
    assert asked == ["public.test"]  # looked up once: what was checked is what was connected to
    for path in ("/in", "/back"):
        asked.clear()
        assert isinstance(failure(server.url(path, "public.test"), private=False), Refused)
    assert server.count("/") == 1


def test_tls_is_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/": b"secret"}, certificate=str(certificate)) as server:
        assert failure(server.url("/", "localhost")).reason.startswith("certificate not trusted: self")
        monkeypatch.setattr(http, "_trust", lambda: ssl.create_default_context(cafile=str(certificate)))
        assert read(server.url("/", "localhost")) == b"secret"
        assert failure(server.url("/")).reason.startswith("certificate not trusted: ")  # it is not called 127.0.0.1
        plain = failure(server.url("/").replace("https", "http"), timeout=0.2)
        assert plain.reason in ("timed out", "answer was cut off", "connection reset by peer")
    with serving({"/": b"plain"}) as server:
        assert failure(server.url("/").replace("http", "https"), timeout=60.0).reason.startswith("TLS failed")


def test_a_proxy_is_asked_and_private_names_stay_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:p%40ss@127.0.0.1:{server.port}")
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{server.port}")
    server.pages["http://no-such-host.invalid/a?b"] = b"through"
    assert read("http://no-such-host.invalid/a?b", private=False) == b"through"
    assert server.asked[0].headers["Host"] == "no-such-host.invalid"
    assert server.asked[0].headers["Proxy-Authorization"] == "Basic bWU6cEBzcw=="
    assert isinstance(failure("http://localhost/", private=False), Refused)
    assert failure("https://no-such-host.invalid/", private=False).reason == "the proxy answered HTTP 501"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.pages["/direct"] = b"direct"
    assert read(server.url("/direct")) == b"direct"
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    assert failure("http://no-such-host.invalid/").reason == "http_proxy is not an http:// address"


def test_retry_waits_and_gives_up() -> None:
    waits: list[float] = []

    def failing(*errors: Failed) -> Any:
        left = list(errors)

        def act() -> str:
            if left:
                raise left.pop(0)
            return "done"

        return act

    busy = Failed("busy", again=True)
    assert retry(4, failing(busy, busy, busy), sleep=waits.append) == "done"
    assert waits == [1, 2, 4]
    waits.clear()
    asked = [Failed("busy", again=True, wait=wait) for wait in (7.0, 0.0, 9999.0)]
    assert retry(4, failing(*asked), sleep=waits.append) == "done"
    assert waits == [7, 0, 60]
    with pytest.raises(Failed, match="busy"):
        retry(3, failing(busy, busy, busy), sleep=waits.append)
    waits.clear()
    with pytest.raises(Failed, match="gone"):
        retry(3, failing(Failed("gone")), sleep=waits.append)
    assert waits == []


@pytest.mark.parametrize(
    ("after", "low", "high"),
    [("7", 7, 7), (formatdate(time.time() + 9000, usegmt=True), 5000, 9001), (formatdate(0, usegmt=True), 0, 0)],
    ids=["seconds", "a date to come", "a date that was"],
)
def test_a_status_as_a_failure(server: Server, after: str, low: float, high: float) -> None:
    server.pages = {"/": Answer(status=503, headers={"Retry-After": after}), "/404": Answer(status=404)}

    def told(reply: Reply) -> Failed:
        return reply.failure()

    with get(server.url("/"), private=True) as reply:
        busy = told(reply)
    assert (busy.reason, busy.again) == ("HTTP 503", True)
    assert busy.wait is not None
    assert low <= busy.wait <= high
    with get(server.url("/404"), private=True) as reply:
        assert (told(reply).again, told(reply).wait) == (False, None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_secrets_stay_with_whom_they_are_for(server: Server, status: int) -> None:
    secrets = {"Authorization": "a", "COOKIE": "b", "Proxy-Authorization": "c", "X-Mine": "d"}
    for path, host in (("/near", "127.0.0.1"), ("/away", "localhost")):
        server.pages = {
            "/there": b"there",
            path: Answer(status=status, headers={"Location": server.url("/there", host)}),
        }
        assert read(server.url(path), headers=secrets) == b"there"
        kept = {name: server.asked[-1].headers[name] for name in secrets}
        assert kept == (secrets if path == "/near" else dict.fromkeys(secrets) | {"X-Mine": "d"})


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("HTTP://A.org", "http://a.org/"),
        ("http://a.org:80/x y", "http://a.org/x%20y"),
        ("https://a.org:443", "https://a.org/"),
        ("https://a.org:80/", "https://a.org:80/"),
        ("http://a.org:443/", "http://a.org:443/"),
        ("http://[2001:DB8::1]:8/", "http://[2001:db8::1]:8/"),
        ("http://bø.no/æ?ø#å", "http://xn--b-5ga.no/%C3%A6?%C3%B8"),
        ("http://faß.de:8/", "http://xn--fa-hia.de:8/"),
        ("http://i❤.ws", "http://xn--i-7iq.ws/"),
        (" http://a.org/a%2fb?c=d&e=(f)~'*!$@;:,+#g ", "http://a.org/a%2fb?c=d&e=(f)~'*!$@;:,+"),
    ],
)
def test_how_an_address_is_sent(url: str, sent: str) -> None:
    assert http._split(url).geturl() == sent


@pytest.mark.parametrize(
    ("error", "reason", "again", "unreached"),
    [
        (socket.gaierror(socket.EAI_AGAIN, ""), "no such host", True, True),
        (socket.gaierror(socket.EAI_NONAME, ""), "no such host", False, True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused", True, True),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "network is unreachable", True, True),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "connection reset by peer", True, False),
        (OSError("Odd"), "odd", True, False),
        (TimeoutError(), "timed out", True, False),
        (IncompleteRead(b""), "answer was cut off", True, False),
        (BadStatusLine("x"), "garbage instead of HTTP", False, False),
        (ssl.SSLError(1, "bad"), "TLS failed: bad", True, False),
        (UnicodeError("x"), "bad address", False, False),
    ],
)
def test_what_may_be_tried_again(error: Exception, reason: str, again: bool, unreached: bool) -> None:
    found = http._failure(error)
    assert (found.reason, found.again, found.unreached) == (reason, again, unreached)


def test_when_a_server_wants_to_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, http, time=lambda: 1_700_000_000.0)
    assert [http._wait(after) for after in (None, "", "0", " 12 ", "soon", "-5", "1.5")] == [
        None,
        None,
        0,
        12,
        None,
        None,
        None,
    ]
    assert http._wait(formatdate(1_700_000_030, usegmt=True)) == 30
    assert http._wait(formatdate(1_600_000_000, usegmt=True)) == 0
