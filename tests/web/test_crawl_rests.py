"""How long a crawl leaves a host alone after each request, and in which order addresses have their turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from kit.web_server import Answer, Server, serving
from ordsmed import __version__
from ordsmed.web import crawl as crawling
from ordsmed.web.crawl import Crawl, crawl
from ordsmed.web.pages import LOG

HTML = {"Content-Type": "text/html"}
OK, BUSY, GONE = Answer(b"<p>", headers=HTML), Answer(status=503), Answer(status=404)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pause of a host after each request, without waiting for it."""
    found: list[float] = []
    back = crawling._Queue.give_back

    def noted(queue: Any, host: Any, rest: float, again: Any) -> None:
        found.append(rest)
        back(queue, host, 0.0, again)

    monkeypatch.setattr(crawling._Queue, "give_back", noted)
    return found


def later(seconds: int) -> Answer:
    return Answer(status=503, headers={"Retry-After": str(seconds)})


def asked(server: Server, folder: Path, *urls: str, **told: Any) -> dict[str, int]:
    how = Crawl(**{"threads": 1, "pause": 1.0, "private": True, "robots": False, **told})
    return dict(crawl([server.url(url) for url in urls or ("/x",)], folder, how))


@pytest.mark.parametrize(
    ("answers", "pause", "waits", "end"),
    [
        ([OK], 1.5, [1.5], "got"),
        ([BUSY, BUSY, OK], 1.0, [2, 4, 1], "got"),
        ([BUSY, BUSY, BUSY, OK], 1.0, [2, 4, 1], "HTTP 503"),
        ([BUSY, BUSY, OK], 3.0, [3, 4, 3], "got"),
        ([later(7), later(60), OK], 1.0, [7, 60, 1], "got"),
        ([later(61), OK], 1.0, [1], "HTTP 503"),
        ([Answer(status=403), OK], 1.0, [2, 1], "got"),
        ([Answer(status=403), Answer(status=403), OK], 1.0, [2, 1], "HTTP 403"),
        ([GONE, OK], 1.0, [1], "HTTP 404"),
        ([Answer(status=302, headers={"Location": "/x?"}), OK], 1.0, [1], "redirects in a circle"),
    ],
)
def test_after_an_answer(
    server: Server,
    tmp_path: Path,
    rests: list[float],
    answers: list[Answer],
    pause: float,
    waits: list[float],
    end: str,
) -> None:
    server.pages = {"/x": list(answers)}
    assert asked(server, tmp_path, pause=pause) == {end: 1}
    assert rests == waits


@pytest.mark.parametrize(
    ("robots", "waits", "end"),
    [
        ([b"User-agent: *\nCrawl-delay: 5"], [5, 5], "got"),
        ([b"User-agent: *\nCrawl-delay: 300"], [60, 60], "got"),
        ([b"User-agent: other\nCrawl-delay: 5\n\nUser-agent: *\nDisallow:"], [1, 1], "got"),
        ([b"User-agent: *\nDisallow: /"], [1, 0], "robots.txt"),
        ([BUSY, BUSY, b""], [2, 4, 1, 1], "got"),
        ([BUSY], [2, 4, 1, 0], "HTTP 503"),
        ([later(60), later(0), b""], [60, 1, 1, 1], "got"),
        ([later(61)], [1, 0], "HTTP 503"),
        ([b"User-agent: *\nCrawl-delay: 2.5"], [2.5, 2.5], "got"),
        ([BUSY, BUSY, BUSY, b""], [2, 4, 1, 0], "HTTP 503"),
        ([Answer(raw=b"\0 no HTTP\r\n\r\n")], [1, 0], "garbage instead of HTTP"),
        ([Answer(b"", headers={"Content-Encoding": "br"})], [1, 0], "Content-Encoding br was not requested"),
        ([Answer(status=399)], [1, 1], "got"),
        ([Answer(status=499)], [1, 1], "got"),
    ],
)
def test_after_its_rules(
    server: Server, tmp_path: Path, rests: list[float], robots: list[Any], waits: list[float], end: str
) -> None:
    server.pages = {"/x": OK, "/robots.txt": list(robots)}
    assert asked(server, tmp_path, robots=True) == {end: 1}
    assert rests == waits


def test_only_failures_in_a_row_shut_a_host(server: Server, tmp_path: Path, rests: list[float]) -> None:
    kinds = {"ok": OK, "gone": GONE, "busy": BUSY, "moved": Answer(status=302, headers={"Location": "/end"})}
    order = ["busy", "busy", "ok", "busy", "busy", "gone", "busy", "busy", "moved", "busy", "busy", "busy", "ok", "ok"]
    server.pages = {f"/{n}": kinds[kind] for n, kind in enumerate(order)} | {"/end": GONE}
    counts = asked(server, tmp_path, *server.pages)
    assert counts == {"HTTP 503": 12, "got": 1, "HTTP 404": 2}
    assert [server.count(f"/{n}") for n in range(14)] == [3, 3, 1, 3, 3, 1, 3, 3, 1, 3, 3, 3, 0, 0]
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [line["tries"] for line in lines if line["url"] in map(server.url, ("/11", "/12"))] == [3, 1]
    assert all(line["again"] for line in lines if line.get("reason") == "HTTP 503")
    assert rests[-3:] == [0, 0, 0], "those left alone cost no time"


def test_tries_of_other_times_count(server: Server, tmp_path: Path, rests: list[float]) -> None:
    server.pages = {"/x": BUSY}
    for wanted in (3, 4, 4):
        asked(server, tmp_path, attempts=4)
        assert server.count("/x") == wanted


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("", "got"),
        ("text/plain;charset=x", "got"),
        (" Application/XHTML+xml ; a=b", "got"),
        ("text/HTML", "got"),
        ("text/htmlx", "no HTML or text"),
        ("application/json", "no HTML or text"),
    ],
)
def test_kinds_of_pages(server: Server, tmp_path: Path, rests: list[float], kind: str, end: str) -> None:
    server.pages = {"/x": Answer(b"x" * 100, headers={"Content-Type": kind})}
    assert asked(server, tmp_path, largest=100) == {end: 1}


def test_what_is_sent_and_how_long_a_page_may_be(server: Server, tmp_path: Path, rests: list[float]) -> None:
    server.pages = {"/x": Answer(b"x" * 101, headers=HTML)}
    assert asked(server, tmp_path, largest=100) == {"too large": 1}
    sent = server.asked[0].headers
    assert sent["User-Agent"] == f"ordsmed/{__version__}"
    assert (sent["Accept"], sent["Accept-Encoding"]) == ("text/html,application/xhtml+xml,text/plain;q=0.5", "gzip")


def test_half_a_megabyte_of_rules_is_heeded(server: Server, tmp_path: Path, rests: list[float]) -> None:
    for size, end in ((511_900, "robots.txt"), (800_000, "got")):
        rules = b"User-agent: *\n" + b"# 345678\n" * (size // 9) + b"Disallow: /\xff\nDisallow: /x"
        server.pages = {"/x": OK, "/robots.txt": rules}
        assert asked(server, tmp_path / end, robots=True) == {end: 1}


def test_rules_of_hosts_that_wait_for_nothing_are_remembered(
    server: Server, tmp_path: Path, rests: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ["127.0.0.1", "127.1", "127.0.1"]

    def count(kept: int) -> int:
        monkeypatch.setattr(crawling, "IDLE_HOSTS", kept)
        monkeypatch.setattr(crawling, "WAITING", 1)
        server.asked.clear()
        server.pages = {"/robots.txt": b""} | {f"/{n}": OK for n in range(6)}
        urls = [server.url(f"/{n}", hosts[n % 3]) for n in range(6)]
        assert crawl(urls, tmp_path / str(kept), Crawl(threads=1, private=True)) == {"got": 6}
        return server.count("/robots.txt")

    assert (count(4096), count(1)) == (3, 6)


def test_where_redirects_may_not_lead(server: Server, tmp_path: Path, rests: list[float]) -> None:
    server.pages = {"/x": Answer(status=301, headers={"Location": "/no"}), "/y": OK}
    how = Crawl(threads=1, private=True, robots=False)
    judged: list[str] = []

    def judge(url: str) -> str:
        judged.append(url)
        return "a rule" if url.endswith("/no") else ""

    assert crawl([server.url("/x"), server.url("/y")], tmp_path, how, 2, judge) == {
        "a rule behind a redirect": 1,
        "got": 1,
    }
    assert judged == [server.url("/no")]
    line = json.loads((tmp_path / LOG).read_text().splitlines()[0])
    assert (line["reason"], line["final"], line["again"]) == ("a rule behind a redirect", server.url("/no"), False)
    assert (server.count("/no"), rests) == (0, [1.0, 1.0])


def test_whose_turn_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    set_time(monkeypatch, crawling, monotonic=lambda: now)
    queue = crawling._Queue(1.5)

    def put(*urls: str) -> None:
        assert all(queue.put(crawling._Job(f"http://{url}", 0)) for url in urls)

    def take() -> Any:
        host, job = queue.take() or (None, None)
        return host, job, job and job.url.removeprefix("http://")

    put("a/1", "a/2", "b/1", "a/3", "c/1")
    assert queue.waiting == 5
    a, job, url = take()
    assert (url, a.pause, queue.waiting) == ("a/1", 1.5, 4)
    b, _, url = take()
    assert url == "b/1", "only one thread works on a host"
    queue.give_back(a, 5.0, job)
    queue.give_back(b, 3.0, None)
    assert (list(queue.hosts), list(queue.idle), queue.waiting) == (["a", "c"], ["b"], 4)
    put("b/2")
    c, job, url = take()
    assert url == "c/1"
    job.hops = ("http://d/1",)
    queue.give_back(c, 0.0, job)
    d, job, url = take()
    assert (d.name, url, job.at) == ("d", "c/1", "http://d/1")
    now = 103.0
    assert take()[2] == "b/2", "its pause goes on while it has no address"
    now = 105.0
    assert take()[2] == "a/1", "what was not done comes first"
    queue.close()
    queue.give_back(a, 0.0, None)
    assert take()[2] == "a/2"
    queue.give_back(a, 0.0, None)
    assert take()[2] == "a/3"
    queue.give_back(a, 0.0, None)
    for host in (b, d):
        queue.give_back(host, 0.0, None)
    assert (queue.take(), queue.waiting, dict(queue.hosts)) == (None, 0, {})
    assert list(queue.idle) == ["c", "a", "b", "d"]
    queue.stop()
    assert not queue.put(crawling._Job("http://e/1", 0))
    assert queue.take() is None


def test_the_least_that_can_be_asked_for() -> None:
    least = Crawl(threads=1, pause=0.0, largest=1, attempts=1, timeout=0.1, slowest=0.1)
    assert (least.threads, least.pause, least.contact) == (1, 0.0, "")
    with pytest.raises(ValueError, match="contact: found 'blåbær'; wanted one line of ASCII"):
        Crawl(contact="blåbær")
