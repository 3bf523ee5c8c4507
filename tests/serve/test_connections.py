"""Connections by raw sockets: idle and idle ones give way, /health is always answered, doubtful heads are refused."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kit.served import Running, running

HEAD = b"POST /fill-mask HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"inputs": "the [MASK] cat"}'
SIZE = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
GOOD = {"length": HEAD + SIZE + b"\r\n" + BODY, "chunked": HEAD + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n"}
BAD = {
    "both": HEAD + CHUNKED + SIZE + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "both, the other first": HEAD + SIZE + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "both, in capitals": HEAD + SIZE + CHUNKED.upper() + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "bare LF": (HEAD + SIZE + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare LF": HEAD + b"A: b\n" + SIZE + b"\r\n" + BODY,
    "bare LF at the end": HEAD + SIZE[:-2] + b"\n\n" + BODY,
    "bare LF before": b"\n" + HEAD + SIZE + b"\r\n" + BODY,
    "bare CR": HEAD + b"A: b\rC: d\r\n" + SIZE + b"\r\n" + BODY,
    "two lengths": HEAD + SIZE + b"Content-Length: 5\r\n\r\n" + BODY,
    "two lengths in a line": HEAD + SIZE[:-2] + b", 5\r\n\r\n" + BODY,
    "a signed length": HEAD + SIZE.replace(b": ", b": +") + b"\r\n" + BODY,
    "folded": HEAD + b"A: b\r\n " + SIZE + b"\r\n" + BODY,
    "folded by a tab": HEAD + b"A: b\r\n\t" + SIZE + b"\r\n" + BODY,
    "folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "a blank before the colon": HEAD + SIZE.replace(b":", b" :") + b"\r\n" + BODY,
    "two codings": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNK + b"0\r\n\r\n",
    "chunked twice": HEAD + CHUNKED + CHUNKED + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "coding of HTTP/1.0": (HEAD + CHUNKED).replace(b"1.1", b"1.0") + b"\r\n" + CHUNK + b"0\r\n\r\n",
    "no size of a chunk": HEAD + CHUNKED + b"\r\nzz\r\n" + BODY + b"\r\n0\r\n\r\n",
    "0x before a size": HEAD + CHUNKED + b"\r\n0x" + CHUNK + b"0\r\n\r\n",
    "a negative size": HEAD + CHUNKED + b"\r\n-1\r\n\r\n",
    "LF behind a size": HEAD + CHUNKED + b"\r\n" + CHUNK.replace(b"\r\n", b"\n", 1) + b"0\r\n\r\n",
    "too long a chunk": HEAD + CHUNKED + b"\r\n5\r\n" + BODY + b"\r\n0\r\n\r\n",
    "LF in trailers": HEAD + CHUNKED + b"\r\n" + CHUNK + b"0\r\nA: b\n\n",
    "two hosts": HEAD + b"Host: evil.example\r\n" + SIZE + b"\r\n" + BODY,
    "a NUL": HEAD + b"A: \0\r\n" + SIZE + b"\r\n" + BODY,
}


def connect(served: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=20)


def answered(connection: socket.socket) -> bytes:
    """Return the bytes received until the server closes the connection."""
    answer = b""
    while part := connection.recv(1 << 16):
        answer += part
    return answer


@pytest.mark.parametrize("name", BAD)
def test_a_head_that_others_may_read_otherwise_is_refused(served: Running, name: str) -> None:
    """And nothing of what follows is read as a request."""
    with connect(served) as connection:
        connection.sendall(BAD[name] + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = answered(connection)
    assert re.fullmatch(rb"HTTP/1\.1 (400|501) .*", answer.partition(b"\r\n")[0]), answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("name", GOOD)
def test_a_head_in_order_is_answered(served: Running, name: str) -> None:
    with connect(served) as connection:
        for byte in GOOD[name]:  # the slowest way to send it
            connection.sendall(bytes([byte]))
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert answered(connection).count(b"HTTP/1.1 200 OK") == 2


def counted(served: Running, reason: str) -> int:
    """How many connections were closed for this reason, as /metrics has it, and what else it says."""
    text = httpx.get(f"{served.url}/metrics").text
    found = re.search(rf'^ordsmed_connections_closed_total{{reason="{reason}"}} (\d+)$', text, re.MULTILINE)
    return int(found[1]) if found else 0


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize(("limits", "reason"), [({"total": 10}, "total"), ({"by_address": 10}, "address")])
def test_silent_connections_give_way(folders: dict[str, Path], limits: dict[str, int], reason: str) -> None:
    """The longest idle first, and before those that were answered once."""
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(running({"bert": folders["bert"]}, connections=limits))
        kept = stack.enter_context(httpx.Client(base_url=served.url))
        assert kept.get("/health").status_code == 200
        idle = [stack.enter_context(connect(served)) for _ in range(30)]
        for number in range(2):
            assert httpx.get(f"{served.url}/health").status_code == 200
            assert httpx.post(f"{served.url}/fill-mask", content=BODY).status_code == 200, number
        assert kept.get("/health").status_code == 200
        pool = kept._transport._pool  # type: ignore[attr-defined]
        assert "Request Count: 2" in repr(pool.connections[0])  # the same connection
        still = [is_open(connection) for connection in idle]
        assert still == sorted(still)
        assert still.count(False) >= 20
        assert counted(served, reason) >= 20
        found = re.search(r"\nordsmed_connections (\d+)\n", httpx.get(f"{served.url}/metrics").text)
        assert found is not None
        assert 2 <= int(found[1]) <= 10


@contextlib.contextmanager
def all_busy(folders: dict[str, Path], spare: int) -> Iterator[tuple[Running, list[socket.socket]]]:
    """A server all of whose connections send a body slowly."""
    with running({"bert": folders["bert"]}, connections={"total": 5, "spare": spare}) as served:
        several = [connect(served) for _ in range(5)]
        for connection in several:
            connection.sendall(HEAD + SIZE + b"\r\n" + BODY[:4])
        server = served.server.server_state
        while len(server.connections) < 5 or not all(each.cycle for each in server.connections):
            time.sleep(0.01)
        yield served, several
        for connection in several:
            connection.close()


def test_where_all_are_busy_health_is_answered(folders: dict[str, Path]) -> None:
    with all_busy(folders, 1) as (served, several):
        for _ in range(4):
            assert httpx.get(f"{served.url}/health").status_code == 200
        for path in ("/fill-mask", "/v1/completions", "/embed"):
            answer = httpx.post(served.url + path, content=BODY)
            headers = answer.headers["retry-after"], answer.headers["connection"]
            assert (answer.status_code, headers) == (503, ("1", "close"))
            assert "all connections are busy" in answer.text
        for connection in several:
            connection.sendall(BODY[4:])
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        assert httpx.post(f"{served.url}/fill-mask", content=BODY).status_code == 200
        assert counted(served, "busy") == 7


def test_beyond_the_spare_connections_a_new_one_is_closed(folders: dict[str, Path]) -> None:
    with all_busy(folders, 0) as (served, several), connect(served) as connection:
        assert connection.recv(1) == b""
        several.pop().close()
        assert counted(served, "refused") == 1


def test_an_answer_that_has_begun_is_closed_at_a_bad_chunk(served: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a traceback, and the next request is answered."""
    body = b'{"inputs": "the old", "stream": true, "parameters": {"max_new_tokens": 4000}}'
    with connect(served) as connection:
        connection.sendall(
            HEAD.replace(b"/fill-mask", b"/gpt2/text-generation") + b"Content-Length: %d\r\n\r\n" % len(body)
        )
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"GET / HTTP/1.1\n\n")
        connection.shutdown(socket.SHUT_WR)
    assert httpx.get(f"{served.url}/health").status_code == 200
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_connection_is_forgotten(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that closes with its answer while the rest of its request's body is read."""
    from ordsmed.serve import connections

    monkeypatch.setattr(connections, "LINGER", 60)
    with running({"bert": folders["bert"]}) as served:
        assert httpx.get(f"{served.url}/health").status_code == 200
        limits = served.server.config.http_protocol_class.keywords["limits"]
        with contextlib.ExitStack() as stack:
            several = [stack.enter_context(connect(served)) for _ in range(3)]
            several[0].sendall(GOOD["length"])
            several[1].sendall(GOOD["length"].replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            assert several[0].recv(12) == several[1].recv(12) == b"HTTP/1.1 200"
            while limits.addresses != {"127.0.0.1": 2}:
                time.sleep(0.01)
            assert (len(limits.fresh), len(limits.answered)) == (1, 1)
            several[2].sendall(HEAD + b"Content-Length: 99999999\r\n\r\n")
            assert several[2].recv(12) == b"HTTP/1.1 413"
            while limits.addresses != {"127.0.0.1": 1}:
                time.sleep(0.01)
            assert len(served.server.server_state.connections) == 2
        while limits.addresses:
            time.sleep(0.01)
        assert not limits.fresh
        assert not limits.answered


@pytest.mark.parametrize(
    ("files", "wanted", "total"),
    [
        ((256, 4_096), (1_306, 4_096), 1_000),
        ((256, 1_024), (1_024, 1_024), 718),
        ((9_999, -1), None, 1_000),
        ((256, resource.RLIM_INFINITY), (1_306, resource.RLIM_INFINITY), 1_000),
        ((64, 64), (64, 64), 1),
    ],
)
def test_open_files_are_as_many_as_connections_need(
    files: tuple[int, int], wanted: tuple[int, int] | None, total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ordsmed.serve import connections

    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: files)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: done.append(limits))
    limits = connections.ConnectionLimits()
    limits.raise_open_files()
    assert (limits.total, done) == (total, [wanted] if wanted else [])
