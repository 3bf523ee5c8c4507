"""A crawl: pauses, robots.txt, limits, and resuming after a kill."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.clocks import set_time
from kit.processes import PATIENT
from kit.web_server import Answer, Request, Server, serving
from ordsmed.base.errors import DataError
from ordsmed.web import crawl as crawling
from ordsmed.web import http
from ordsmed.web import pages as keeping
from ordsmed.web.crawl import Crawl, crawl
from ordsmed.web.pages import LOG, Page, Pages, lay_out, pages_in_order, part_path

HTML = {"Content-Type": "text/html; charset=utf-8"}
HOSTS = ("127.0.0.1", "127.1", "127.0.1", "2130706433")  # four names of one server


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawling, "BACKOFF", 0.01)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def page(text: str, **told: Any) -> Answer:
    return Answer(f"<p>{text}</p>".encode(), headers=HTML, **told)


def how(**told: Any) -> Crawl:
    return Crawl(**{"threads": 4, "pause": 0.0, "private": True, "timeout": 30.0, "robots": False, **told})


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def stored(folder: Path, urls: list[str]) -> tuple[list[str], dict[str, int]]:
    missing = lay_out(urls, folder, folder / "order-x.bin")
    return [page.body.decode() for page in pages_in_order(folder / "order-x.bin")], dict(missing)


def until(done: Callable[[], bool]) -> None:
    for _ in range(6000):
        if done():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_pages_come_in_the_order_of_the_list(server: Server, tmp_path: Path) -> None:
    def last(request: Request) -> Answer:
        until(lambda: (tmp_path / LOG).exists() and len(log(tmp_path)) == 3)
        return page("0 å")

    server.pages = {"/0": last} | {f"/{n}": page(f"{n} å") for n in range(1, 4)}
    urls = [server.url(f"/{n}", host) for n, host in enumerate(HOSTS)]
    assert crawl(urls, tmp_path, how(), 4) == {"got": 4}
    assert log(tmp_path)[-1]["url"] == urls[0]
    assert stored(tmp_path, urls) == ([f"<p>{n} å</p>" for n in range(4)], {})
    assert stored(tmp_path, urls[::-1])[0] == [f"<p>{n} å</p>" for n in (3, 2, 1, 0)]


def test_nothing_is_asked_for_twice(server: Server, tmp_path: Path) -> None:
    server.pages = {"/a": page("a"), "/b": page("b"), "/none": Answer(status=404)}
    urls = [server.url(path) for path in ("/a", "/none", "/a", "/b")]
    urls.append(urls[0].replace("http:", "https:"))
    assert crawl(urls, tmp_path, how()) == {"got": 2, "HTTP 404": 1, "already there": 2}
    assert crawl([*urls, server.url("/c")], tmp_path, how()) == {"HTTP 404": 1, "already there": 5}
    assert Counter(request.path for request in server.asked) == {"/a": 1, "/b": 1, "/none": 1, "/c": 1}
    assert stored(tmp_path, [*urls[:2], server.url("/new")]) == (["<p>a</p>"], {"HTTP 404": 1, "not downloaded": 1})


BOMB = gzip.compress(bytes(50_000_000))
CASES: list[tuple[str, Any, str, int]] = [
    ("busy twice", [Answer(status=503), Answer(status=503), page("at last")], "", 3),
    ("busy for ever", Answer(status=503), "HTTP 503", 3),
    ("forbidden once", [Answer(status=403), page("now")], "", 2),
    ("forbidden", Answer(status=403), "HTTP 403", 2),
    ("gone", Answer(status=410), "HTTP 410", 1),
    ("cut off", page("cut", cut=3), "answer was cut off", 3),
    ("garbage", Answer(raw=b"\x00\xff rubbish\r\n\r\n"), "garbage instead of HTTP", 1),
    ("circle", Answer(status=302, headers={"Location": "/x"}), "redirects in a circle", 1),
    ("file", Answer(status=301, headers={"Location": "file:///etc/passwd"}), "refused address", 1),
    ("large", Answer(bytes(50_000_000), headers=HTML, ranges=False), "too large", 1),
    ("swells", Answer(BOMB, headers={**HTML, "Content-Encoding": "gzip"}), "too large", 1),
    ("picture", Answer(b"\x89PNG", headers={"Content-Type": "image/png"}), "no HTML or text", 1),
    ("empty", Answer(b"", headers=HTML), "", 1),
    ("latin", Answer(b"\xe5", headers={"Content-Type": "Text/HTML; charset=utf-8"}), "", 1),
]


@pytest.mark.parametrize(("answer", "reason", "asked"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_answers(server: Server, tmp_path: Path, answer: Any, reason: str, asked: int) -> None:
    server.pages = {"/x": list(answer) if isinstance(answer, list) else answer}
    assert crawl([server.url("/x")], tmp_path, how()) == {reason or "got": 1}
    assert server.count("/x") == asked
    (line,) = log(tmp_path)
    assert (line["url"], line["tries"], line.get("reason", "")) == (server.url("/x"), asked, reason)


@pytest.mark.long
def test_slow_answers(server: Server, tmp_path: Path) -> None:
    server.pages = {"/hangs": page("late", wait=60), "/drips": page("drop by drop", drip=0.1)}
    assert crawl([server.url("/hangs")], tmp_path, how(timeout=0.2)) == {"timed out": 1}
    assert crawl([server.url("/drips")], tmp_path, how(slowest=0.3)) == {"too slow": 1}
    assert [line["tries"] for line in log(tmp_path)] == [3, 1]


def test_an_empty_page_and_one_of_a_wrong_charset_are_kept_as_they_are(server: Server, tmp_path: Path) -> None:
    server.pages = {"/1": Answer(b"", headers=HTML), "/2": Answer(b"\r\n\r\n\xe5\r\n\r\n", headers=HTML)}
    urls = [server.url("/1"), server.url("/2")]
    crawl(urls, tmp_path, how())
    lay_out(urls, tmp_path, tmp_path / "order-x.bin")
    kind = HTML["Content-Type"]
    assert list(pages_in_order(tmp_path / "order-x.bin")) == [
        Page(urls[0], kind, b""),
        Page(urls[1], kind, b"\r\n\r\n\xe5\r\n\r\n"),
    ]


def test_private_addresses_are_refused_unless_asked_for(server: Server, tmp_path: Path) -> None:
    assert crawl([server.url("/", host) for host in HOSTS], tmp_path, how(private=False, robots=True)) == {
        "refused address": 4
    }
    assert server.asked == []


def test_a_redirect_to_a_private_address_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "public", lambda address: str(address) == "127.0.0.1")
    server.pages = {"/in": Answer(status=302, headers={"Location": server.url("/x", "127.0.0.2")})}
    server.pages["/on"] = Answer(status=302, headers={"Location": "/there"})
    server.pages["/there"] = page("there")
    counts = crawl([server.url("/in"), server.url("/on")], tmp_path, how(private=False))
    assert counts == {"refused address": 1, "got": 1}
    assert [line["final"] for line in log(tmp_path) if "final" in line] == [server.url("/there")]


def test_one_request_at_a_time_to_a_host_and_a_pause(server: Server, tmp_path: Path) -> None:
    lock, spans = threading.Lock(), list[tuple[float, float]]()

    def slow(request: Request) -> Answer:
        began = time.monotonic()
        assert lock.acquire(blocking=False), "two at once"
        time.sleep(0.02)
        lock.release()
        spans.append((began, time.monotonic()))
        return page("x")

    server.pages = {f"/{n}": slow for n in range(4)} | {"/robots.txt": slow}
    counts = crawl([server.url(f"/{n}") for n in range(4)], tmp_path, how(pause=0.1, robots=True))
    assert counts == {"got": 4}
    assert all(after[0] - before[1] >= 0.05 for before, after in itertools.pairwise(spans))


def test_hosts_are_asked_side_by_side(server: Server, tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def meet(request: Request) -> Answer:
        together.wait(timeout=PATIENT)
        return page("met")

    server.pages = {"/": meet}
    assert crawl([server.url("/", host) for host in HOSTS], tmp_path, how()) == {"got": 4}


def test_few_addresses_wait_in_memory(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawling, "WAITING", 2)
    monkeypatch.setattr(crawling, "IDLE_HOSTS", 1)
    drawn = 0

    def urls() -> Iterator[str]:
        nonlocal drawn
        for n in range(20):
            drawn += 1
            yield server.url(f"/{n}", HOSTS[n % 4])

    ahead: list[int] = []
    for n in range(20):
        server.pages[f"/{n}"] = lambda request: ahead.append(drawn - len(server.asked)) or page(request.path)
    assert crawl(urls(), tmp_path, how(threads=1)) == {"got": 20}
    assert max(ahead) <= 4


ROBOTS = b"User-agent: *\nDisallow: /secret\n\nUser-agent: ordsmed\nDisallow: /ours\nCrawl-delay: 0\n"


@pytest.mark.parametrize(
    ("robots", "counts", "asked"),
    [
        (ROBOTS, {"got": 2, "robots.txt": 1}, 1),
        (b"\xef\xbb\xbfUser-agent: *\r\nDisallow: /\r\n", {"robots.txt": 3}, 1),
        (b"Disallow: /\nUser-agent: *\nDisallow: //[", {"got": 3}, 1),
        (b"User-agent: *\nDisallow: /*1$\n\nUser-agent: *\nDisallow: /sec*", {"got": 1, "robots.txt": 2}, 1),
        (b"User-agent: *\nDisallow: /\n" + b"#" * 900_000 + b"\nUser-agent: ordsmed\nAllow: /", {"robots.txt": 3}, 1),
        (Answer(status=404), {"got": 3}, 1),
        (Answer(status=401), {"got": 3}, 1),
        (Answer(status=403), {"got": 3}, 1),
        (Answer(b"User-agent: *\nDisallow: /", status=203), {"robots.txt": 3}, 1),
        (Answer(status=302, headers={"Location": "/robots.txt"}), {"got": 3}, 1),
        (Answer(status=302, headers={"Location": "file:///etc/passwd"}), {"refused address": 3}, 1),
        (Answer(status=501), {"HTTP 501": 3}, 1),
        ([Answer(status=500), Answer(status=404)], {"got": 3}, 2),
        (Answer(status=500), {"HTTP 500": 3}, 3),
        (Answer(status=429, headers={"Retry-After": "3600"}), {"HTTP 429": 3}, 1),
    ],
)
def test_robots(server: Server, tmp_path: Path, robots: Any, counts: dict[str, int], asked: int) -> None:
    paths = ["/ours/1", "/secret", "/open"]
    server.pages = {path: page(path) for path in paths} | {"/robots.txt": robots}
    found = crawl([server.url(path) for path in paths], tmp_path, how(robots=True, contact="https://example.org/bot"))
    assert (found, server.count("/robots.txt")) == (counts, asked)
    names = {request.headers["User-Agent"] for request in server.asked}
    assert [re.sub(r"/\S+ ", " ", name) for name in names] == ["ordsmed (+https://example.org/bot)"]


def test_rules_behind_redirects_are_those_of_who_redirects(server: Server, tmp_path: Path) -> None:
    """Five redirects at least, to other hosts too: RFC 9309."""
    server.pages = {"/robots.txt": moved("/1"), "/a": page("a"), "/secret": page("no")}
    server.pages |= {f"/{n}": moved(server.url(f"/{n + 1}", HOSTS[n % 2])) for n in range(1, 5)}
    server.pages["/5"] = Answer(ROBOTS.replace(b"/ours", b"/secret"))
    assert crawl([server.url("/a"), server.url("/secret")], tmp_path, how(robots=True)) == {"got": 1, "robots.txt": 1}
    assert (server.count("/robots.txt"), server.count("/5"), server.count("/secret")) == (1, 1, 0)


def test_http_and_https_have_rules_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    @contextlib.contextmanager
    def answer(url: str, **told: Any) -> Iterator[Any]:
        asked.append(url)
        body = {"http://a.org/robots.txt": b"", "https://a.org/robots.txt": b"User-agent: *\nDisallow: /"}.get(
            url, b"x"
        )
        yield SimpleNamespace(status=200, url=url, headers=Message(), blocks=lambda *_, **__: iter([body]))

    monkeypatch.setattr(crawling, "get", answer)
    urls = ["http://a.org/1", "https://a.org/2", "http://a.org/3"]
    assert crawl(urls, tmp_path, how(robots=True, threads=1)) == {"got": 2, "robots.txt": 1}
    assert asked == [f"http://a.org/{path}" for path in ("robots.txt", "1")] + ["https://a.org/robots.txt", urls[2]]


@pytest.mark.parametrize(("hours", "counts", "asked"), [(23, {"got": 2}, 3), (25, {"got": 1, "robots.txt": 1}, 6)])
def test_rules_are_asked_for_again_after_a_day(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int, counts: dict[str, int], asked: int
) -> None:
    clock, later = time.monotonic, [0.0]
    set_time(monkeypatch, crawling, monotonic=lambda: clock() + later[0])

    def first(request: Request) -> Answer:
        later[0] = hours * 3600.0
        return page("1")

    busy = [Answer(status=500)] * (crawling.TRIES - 1)
    server.pages = {"/robots.txt": [*busy, b"", *busy, b"User-agent: *\nDisallow: /2"], "/1": first, "/2": page("2")}
    urls = [server.url("/1"), server.url("/2")]
    found = crawl(urls, tmp_path, how(robots=True, threads=1, timeout=1e6, slowest=1e6))
    assert (found, server.count("/robots.txt")) == (counts, asked)


def moved(where: str) -> Answer:
    return Answer(status=302, headers={"Location": where})


@pytest.mark.parametrize(("robots", "counts"), [("/", {"robots.txt": 6}), ("/no", {"got": 3, "robots.txt": 3})])
def test_where_a_redirect_leads_is_asked_for_as_that_host_wants(
    server: Server, tmp_path: Path, robots: str, counts: dict[str, int]
) -> None:
    lock = threading.Lock()

    def one(request: Request) -> Answer:
        assert lock.acquire(blocking=False), "two at once"
        time.sleep(0.02)
        lock.release()
        return page(request.path)

    for n, path in itertools.product(range(3), ("ok", "no")):
        server.pages |= {f"/{path}{n}/from": moved(server.url(f"/{path}{n}/to", "127.0.1")), f"/{path}{n}/to": one}

    def rules(request: Request) -> Answer:
        there = request.headers["Host"].startswith("127.0.1:")
        return Answer(f"User-agent: *\nDisallow: {robots}\n".encode() if there else b"")

    server.pages["/robots.txt"] = rules
    others = [host for host in HOSTS if host != "127.0.1"]
    urls = [server.url(f"/{path}{n}/from", host) for n, host in enumerate(others) for path in ("ok", "no")]
    assert crawl(urls, tmp_path, how(robots=True, threads=8)) == counts
    reached = {request.path for request in server.asked if request.path.endswith("/to")}
    assert reached == ({f"/ok{n}/to" for n in range(3)} if "got" in counts else set())
    assert {line["url"] for line in log(tmp_path)} == set(urls)


def test_redirects_over_hosts_end(server: Server, tmp_path: Path) -> None:
    ring = [server.url("/ring", host) for host in HOSTS]
    server.pages = {"/ring": lambda request: moved(ring[(server.count("/ring")) % len(ring)])}
    server.pages |= {f"/{n}": moved(server.url(f"/{n + 1}", HOSTS[n % 2])) for n in range(20)}
    assert crawl(ring[:1], tmp_path, how()) == {"redirects in a circle": 1}
    assert crawl([server.url("/0")], tmp_path, how()) == {"more than 8 redirects": 1}
    assert (server.count("/ring"), server.count("/8"), server.count("/9")) == (4, 1, 0)


def test_redirects_within_a_host_are_bound_by_its_rules_and_pause(server: Server, tmp_path: Path) -> None:
    at = list[float]()
    for path, answer in {"/a": moved("/b"), "/b": page("b"), "/c": moved("/secret"), "/secret": page("no")}.items():
        server.pages[path] = lambda request, answer=answer: at.append(time.monotonic()) or answer
    server.pages["/robots.txt"] = Answer(ROBOTS.replace(b"/ours", b"/secret"))
    counts = crawl([server.url("/a"), server.url("/c")], tmp_path, how(robots=True, pause=0.1))
    assert (counts, server.count("/secret")) == ({"got": 1, "robots.txt": 1}, 0)
    assert all(after - before >= 0.05 for before, after in itertools.pairwise(at))


def test_a_host_may_ask_for_time(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawling, "BACKOFF", 1e9)
    server.pages = {"/soon": [Answer(status=429, headers={"Retry-After": "0"}), page("soon")]}
    assert crawl([server.url("/soon")], tmp_path, how()) == {"got": 1}
    server.pages = {"/1": Answer(status=503, headers={"Retry-After": "86400"}), "/2": page("2"), "/3": page("3")}
    urls = [server.url(path) for path in server.pages]
    assert crawl([*urls, server.url("/3", "127.1")], tmp_path, how(threads=1)) == {"HTTP 503": 3, "got": 1}
    assert (server.count("/2"), server.count("/3")) == (0, 1)
    server.pages["/1"] = page("1")
    assert crawl(urls, tmp_path, how()) == {"got": 3}


def test_a_host_that_fails_again_and_again_is_left(server: Server, tmp_path: Path) -> None:
    server.pages = {f"/{n}": Answer(status=500) for n in range(6)}
    assert crawl([server.url(f"/{n}") for n in range(6)], tmp_path, how()) == {"HTTP 500": 6}
    assert len(server.asked) == crawling.DEAD * crawling.TRIES


def test_what_may_pass_is_tried_again_but_not_for_ever(server: Server, tmp_path: Path) -> None:
    server.pages = {"/busy": Answer(status=503), "/gone": Answer(status=404)}
    urls = [server.url("/busy"), server.url("/gone")]
    asked = []
    for _ in range(3):
        crawl(urls, tmp_path, how(attempts=5))
        asked.append((server.count("/busy"), server.count("/gone")))
    assert asked == [(3, 1), (5, 1), (5, 1)]
    assert stored(tmp_path, urls) == ([], {"HTTP 503": 1, "HTTP 404": 1})


CRAWL = """
import sys
from pathlib import Path
from ordsmed.web.crawl import Crawl, crawl
if sys.argv[2] == "full":
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
how = Crawl(threads=2, pause=0.0, private=True, robots=False, timeout=60.0)
try:
    print(sorted(crawl(sys.argv[3:], Path(sys.argv[1]), how).items()))
except Exception as error:
    print(type(error).__name__, error)
"""


def start(folder: Path, urls: list[str], disk: str = "") -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CRAWL, str(folder), disk, *urls]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_killed_in_the_middle_it_goes_on(server: Server, tmp_path: Path) -> None:
    hangs = threading.Event()

    def hang(request: Request) -> Answer:
        if server.count("/hang") > 1:
            return page("/hang")
        hangs.set()
        return page("never", wait=PATIENT)

    paths = [f"/{n}" for n in range(9)]
    server.pages = {path: page(path * 50) for path in paths} | {"/hang": hang}
    urls = [*(server.url(path) for path in paths), server.url("/hang", "127.1"), server.url("/end", "127.1")]
    with start(tmp_path / "pages", urls) as process:
        assert hangs.wait(PATIENT)
        until(lambda: len(log(tmp_path / "pages")) == 9)
        process.kill()
    assert server.count("/end") == 0
    part = part_path(tmp_path / "pages", 0)
    with part.open("ab") as file, (tmp_path / "pages" / LOG).open("ab") as lines:  # as if killed while it wrote
        file.write(gzip.compress(b"WARC/1.0 half")[:20])
        lines.write(b'{"url": "http://127.0.0.1/never", "tri')
    server.pages["/end"] = page("/end")
    with start(tmp_path / "pages", urls) as process:
        said, told = process.communicate(timeout=PATIENT)
    assert said == "[('already there', 9), ('got', 2)]\n"
    told = " ".join(told.split())  # lines are wrapped
    assert "removed 20 bytes of pages that are incomplete or not in the log" in told
    assert "outcomes.jsonl: removed an incomplete last line" in told
    assert gzip.decompress(part.read_bytes()).count(b"WARC/1.0") == len(paths)  # nothing half written is left
    asked = Counter(request.path for request in server.asked)
    assert asked == {**dict.fromkeys(paths, 1), "/end": 1, "/hang": 2}  # what was on its way, no other
    assert stored(tmp_path / "pages", urls) == (
        [*(f"<p>{p * 50}</p>" for p in paths), "<p>/hang</p>", "<p>/end</p>"],
        {},
    )


@pytest.mark.long
def test_two_processes_in_one_folder(server: Server, tmp_path: Path) -> None:
    server.pages = {f"/{n}": page("x", wait=0.05) for n in range(5)}
    urls = [server.url(f"/{n}") for n in range(5)]
    processes = [start(tmp_path / "pages", urls) for _ in range(2)]
    said = [process.communicate(timeout=PATIENT)[0] for process in processes]
    assert sorted(said) == ["[('already there', 5)]\n", "[('got', 5)]\n"]
    assert len(server.asked) == 5


def test_a_full_disk_keeps_what_was_finished(server: Server, tmp_path: Path) -> None:
    noise = "".join(chr(33 + n * n * 7 % 90) for n in range(700))
    server.pages = {f"/{n}": page(f"{n}{noise}{n}") for n in range(9)}
    urls = [server.url(f"/{n}") for n in range(9)]
    said, _ = start(tmp_path / "pages", urls, "full").communicate(timeout=PATIENT)
    assert re.fullmatch(r"RunError \S+/pages: cannot write: File too large; check `ulimit -f` .*\n", said)
    kept = len(log(tmp_path / "pages"))
    assert 0 < kept < 9
    assert len(stored(tmp_path / "pages", urls)[0]) == kept
    asked = len(server.asked)
    assert crawl(urls, tmp_path / "pages", how()) == {"already there": kept, "got": 9 - kept}
    assert len(server.asked) == asked + 9 - kept
    assert stored(tmp_path / "pages", urls)[0] == [f"<p>{n}{noise}{n}</p>" for n in range(9)]


def test_a_part_that_is_gone_is_downloaded_again(server: Server, tmp_path: Path, capsys: Any) -> None:
    server.pages = {"/1": page("1"), "/2": page("2")}
    urls = [server.url("/1"), server.url("/2")]
    crawl(urls[:1], tmp_path, how())
    crawl(urls, tmp_path, how())
    for gone in (0, 2):  # the second time it is the last
        part_path(tmp_path, gone).unlink()
        assert stored(tmp_path, urls) == (["<p>2</p>"], {"not downloaded": 1})
        assert crawl(urls, tmp_path, how()) == {"got": 1, "already there": 1}
        assert "only in the log" in capsys.readouterr().err
        assert stored(tmp_path, urls) == (["<p>1</p>", "<p>2</p>"], {})
    assert sorted(path.name for path in tmp_path.glob("pages-*")) == ["pages-00001.warc.gz", "pages-00003.warc.gz"]


def test_damage_is_told_with_its_place(server: Server, tmp_path: Path) -> None:
    server.pages = {"/1": page("1" * 500)}
    crawl([server.url("/1")], tmp_path, how())
    part = part_path(tmp_path, 0)
    whole = part.read_bytes()
    part.write_bytes(whole[:60] + b"??" + whole[62:])
    with pytest.raises(DataError, match=r"pages-00000\.warc\.gz: byte 0: incomplete page .*; remove pages-00000"):
        stored(tmp_path, [server.url("/1")])
    (tmp_path / LOG).write_text('{"url": "http://a.org/"}\n')
    with pytest.raises(DataError, match=r"outcomes\.jsonl:1: is damaged: .*; remove that line"):
        crawl([], tmp_path, how())


def test_parts_are_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "PART", 400)
    with Pages(tmp_path) as pages:
        for n in range(7):
            pages.keep(Page(f"http://a.org/{n}", "text/html", b"page %d" % n), 1)
    assert len(list(tmp_path.glob("pages-*.warc.gz"))) == 4
    assert stored(tmp_path, [f"http://a.org/{n}" for n in range(7)])[0] == [f"page {n}" for n in range(7)]
    assert [page.body for page in pages_in_order(tmp_path / "order-x.bin", 16, 48)] == [b"page 1", b"page 2"]


def test_other_tools_read_the_parts(tmp_path: Path) -> None:
    archives = pytest.importorskip("warcio.archiveiterator")
    with Pages(tmp_path) as pages:
        pages.keep(Page("http://a.org/å", "text/html; charset=x\r\n ø", "<p>å".encode()), 1)
        pages.keep(Page("http://a.org/2", "", b""), 1)
    found = []
    with part_path(tmp_path, 0).open("rb") as file:
        for record in archives.ArchiveIterator(file, check_digests=True):
            head = record.http_headers
            url = record.rec_headers["WARC-Target-URI"]
            found.append((record.rec_type, url, head.get_statuscode(), head["Content-Type"], record.raw_stream.read()))
    assert found == [
        ("response", "http://a.org/å", "200", "text/html; charset=x ø", "<p>å".encode()),
        ("response", "http://a.org/2", "200", "", b""),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threads", 0),
        ("pause", -1.0),
        ("largest", 0),
        ("timeout", 0.0),
        ("slowest", 0.0),
        ("attempts", 0),
        ("contact", "a\nb"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field}: found .*; wanted "):
        Crawl(**{field: value})
