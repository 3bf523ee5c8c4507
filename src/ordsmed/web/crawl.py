"""Many pages downloaded politely into a folder, which a killed crawl goes on with.

    addresses -> a queue for each host -> threads: robots.txt, then one page at a time and a pause -> web/pages.py

One host sees one request at a time, whatever the number of threads; where a redirect leads is asked for in the turn of
that host, by its own robots.txt and pause. What may pass (a timeout, a status 503) is tried
again after a while, later again when the folder is next gone on with, and given up after so many tries in all. What was
finished is never asked for again; what was on its way when the process was killed is.
"""

import functools
import heapq
import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn
from urllib.parse import urlsplit

from ordsmed import __version__
from ordsmed.base.checks import at_least
from ordsmed.base.run import locked
from ordsmed.base.say import Progress
from ordsmed.text.seen import Seen
from ordsmed.web.http import REDIRECTS, Failed, Misled, Refused, get
from ordsmed.web.pages import Page, Pages, behind
from ordsmed.web.robots import NAME, RobotRules, read_rules
from ordsmed.web.urls import number

KINDS = ("", "text/html", "application/xhtml+xml", "text/plain")
TRIES = 3  # of an address before the folder is next gone on with
BACKOFF = 2.0  # seconds before the second try, twice as many before the third
PATIENCE = 60.0  # seconds: a host that wants to be left alone for longer is left for another time
DEAD = 3  # so is one that fails so many addresses in a row
DAY = 86_400.0  # seconds for which rules are heeded before they are asked for again
WAITING = 100_000  # addresses in the queues
KEPT = 4096  # hosts without a waiting address that are remembered


@dataclass(frozen=True)
class Crawl:
    """How pages are downloaded."""

    HOW: ClassVar[tuple[str, ...]] = (
        "threads", "pause", "robots", "contact", "timeout", "slowest", "attempts", "download",
    )  # fmt: skip

    threads: int = 16
    "pages on their way at once"
    pause: float = 1.0
    "seconds between two requests to one host"
    robots: bool = True
    "obey robots.txt"
    contact: str = ""
    "an address or page that tells who downloads, sent with every request"
    private: bool = False
    "get pages of this machine and its own network too"
    largest: int = 10_000_000
    "bytes of a page; a longer one is given up"
    timeout: float = 30.0
    "seconds to wait for an answer, and for each next piece of it"
    slowest: float = 120.0
    "seconds for a whole page"
    attempts: int = 6
    "tries of an address in all, however often the corpus is made"

    def __post_init__(self) -> None:
        at_least(self, threads=1, pause=0, largest=1, attempts=1)
        for name in ("timeout", "slowest"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted more than 0")
        if not (self.contact.isascii() and self.contact.isprintable()):
            raise ValueError(f"contact: found {self.contact!r}; wanted one line of ASCII")


def crawl(
    urls: Iterable[str], folder: Path, how: Crawl, total: int = 0, fault_of: Callable[[str], str] = lambda _: ""
) -> Counter[str]:
    """Download what the folder lacks; how many pages were got, stood already, or why not. `total` is for the bar.

    `judge` tells why an address that a redirect leads to is not gone to; "": it is.
    """
    with locked(folder), Pages(folder, fault_of) as pages, Progress("crawl", total, "pages") as shown:
        work = _CrawlState(pages, how, shown, fault_of)
        threads = [threading.Thread(target=work.go, daemon=True) for _ in range(how.threads)]
        for thread in threads:
            thread.start()
        try:
            work.feed(urls)
            for thread in threads:
                thread.join()
        finally:
            work.queue.stop()
        if work.error:
            raise work.error
        return work.counts


@dataclass(eq=False)
class _Job:
    url: str
    before: int  # tries when the folder was gone on with before
    now: int = 0  # tries since
    hops: tuple[str, ...] = ()  # where redirects led so far

    @property
    def at(self) -> str:
        """What is to be asked for."""
        return self.hops[-1] if self.hops else self.url

    @property
    def host(self) -> str:
        """Whom it is to be asked of."""
        return urlsplit(self.at).netloc


class _Astray(Failed):
    """A redirect that leads to what the rules leave out."""


class _Moved(Exception):
    """An answer that leads elsewhere; the job knows where."""


@dataclass(eq=False)
class _Host:
    name: str
    pause: float
    jobs: deque[_Job] = field(default_factory=deque)
    ready: float = 0.0  # when it may be asked again
    rules: dict[str, tuple[RobotRules, float]] = field(default_factory=dict)  # of http and https, and until when
    tries: int = 0  # of its robots.txt
    failed: int = 0  # addresses in a row
    shut: str = ""  # why it is left for another time


class _Queue:
    """Addresses that wait for their host's turn; a host is in one pair of hands at a time."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.changed = threading.Condition()
        self.hosts: dict[str, _Host] = {}  # with addresses
        self.idle: OrderedDict[str, _Host] = OrderedDict()  # without
        self.turns: list[tuple[float, int, _Host]] = []  # by time: hosts that wait
        self.numbers = itertools.count()
        self.waiting, self.closed, self.stopped = 0, False, False

    def put(self, job: _Job) -> bool:
        """Line an address up, when there is room; False: nobody takes it any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting < WAITING or self.stopped)
            self._append(job)
            return not self.stopped

    def take(self) -> tuple[_Host, _Job] | None:
        """The next host whose turn it is, and its address; None: there is nothing more to do."""
        with self.changed:
            while not self.stopped and not (self.closed and not self.hosts):
                wait = self.turns[0][0] - time.monotonic() if self.turns else None
                if wait is not None and wait <= 0:
                    host = heapq.heappop(self.turns)[2]
                    self.waiting -= 1
                    return host, host.jobs.popleft()
                self.changed.wait(wait)
            return None

    def give_back(self, host: _Host, rest: float, again: _Job | None) -> None:
        """A host is free; it rests so many seconds. `again` is an address that was not done, or leads elsewhere now."""
        with self.changed:
            host.ready = time.monotonic() + rest
            if again and again.host != host.name:
                self._append(again)
            elif again:
                host.jobs.appendleft(again)
                self.waiting += 1
            if host.jobs:
                self._line_up(host)
            else:
                self.idle[host.name] = self.hosts.pop(host.name)
                if len(self.idle) > KEPT:
                    self.idle.popitem(last=False)
            self.changed.notify_all()

    def close(self) -> None:
        """No more addresses come."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Nothing more is begun."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def _append(self, job: _Job) -> None:
        name = job.host
        host = self.hosts.get(name) or self.idle.pop(name, None) or _Host(name, self.pause)
        host.jobs.append(job)
        self.waiting += 1
        if name not in self.hosts:
            self.hosts[name] = host
            self._line_up(host)

    def _line_up(self, host: _Host) -> None:
        heapq.heappush(self.turns, (host.ready, next(self.numbers), host))
        self.changed.notify()


class _CrawlState:
    """What the threads of a crawl share."""

    def __init__(self, pages: Pages, how: Crawl, shown: Progress, fault_of: Callable[[str], str]) -> None:
        self.pages, self.how, self.shown, self.fault_of = pages, how, shown, fault_of
        self.queue, self.counts, self.lock = _Queue(how.pause), Counter[str](), threading.Lock()
        self.error: BaseException | None = None
        self.headers = {
            "User-Agent": f"{NAME}/{__version__}" + (f" (+{how.contact})" if how.contact else ""),
            "Accept": "text/html,application/xhtml+xml,text/plain;q=0.5",
            "Accept-Encoding": "gzip",
        }

    def feed(self, urls: Iterable[str]) -> None:
        """Line up what is neither done nor given up."""
        begun = Seen()
        for url in urls:
            before = self.pages.outcomes.tries(url, self.how.attempts)
            if before is None or not begun.add(number(url)):
                self._count("stood already")
            elif not self.queue.put(_Job(url, before)):
                break
        self.queue.close()

    def go(self) -> None:
        """What one thread does."""
        try:
            while taken := self.queue.take():
                host, job = taken
                rest, again = self._turn(host, job)
                self.queue.give_back(host, rest, again)
        except BaseException as error:
            self.error = self.error or error
            self.queue.stop()

    def _turn(self, host: _Host, job: _Job) -> tuple[float, _Job | None]:
        """One request at most: how long the host rests then, and the address if it is not done."""
        if host.shut:
            return self._miss(job, host.shut, again=True)
        if self.how.robots:
            rules, until = host.rules.get(urlsplit(job.at).scheme, (None, 0.0))
            if rules is None or time.monotonic() > until:
                return self._ask_robots(host, job)
            if not rules.allow(job.at):
                return self._miss(job, "robots.txt")
        try:
            page = self._get(job)
        except _Moved:
            host.failed = 0
            return host.pause, job
        except Failed as error:
            return self._failed(host, job, error)
        host.failed = 0
        self.pages.keep(page, job.before + job.now + 1)
        self._count("got")
        return host.pause, None

    def _get(self, job: _Job) -> Page:
        how, move = self.how, functools.partial(_move, job, self.fault_of)
        with get(job.at, headers=self.headers, timeout=how.timeout, private=how.private, hop=move) as reply:
            if reply.status != 200:
                raise reply.failure()
            kind = reply.headers.get("Content-Type", "")
            if kind.partition(";")[0].strip().lower() not in KINDS:
                raise Failed("no HTML or text")
            return Page(job.url, kind, b"".join(reply.blocks(how.largest, how.slowest)), reply.url)

    def _failed(self, host: _Host, job: _Job, error: Failed) -> tuple[float, _Job | None]:
        job.now += 1
        wait = BACKOFF * 2 ** (job.now - 1) if error.wait is None else error.wait
        again = error.again or (error.reason == "HTTP 403" and job.now == 1)
        if again and wait <= PATIENCE and job.now < TRIES and job.before + job.now < self.how.attempts:
            return max(wait, host.pause), job
        host.failed = host.failed + 1 if error.again else 0
        if wait > PATIENCE or host.failed >= DEAD:
            host.shut = _short(error)
        self._miss(job, _short(error), error.again, job.at if isinstance(error, _Astray) else "")
        return host.pause, None

    def _miss(self, job: _Job, reason: str, again: bool = False, final: str = "") -> tuple[float, None]:
        self.pages.miss(job.url, job.before + max(job.now, 1), reason, again, final)
        self._count(reason)
        return 0.0, None

    def _ask_robots(self, host: _Host, job: _Job) -> tuple[float, _Job]:
        """What the host wants left alone. Without an answer nothing of it is asked for; "no" is an answer."""
        scheme, how = urlsplit(job.at).scheme, self.how
        address = f"{scheme}://{host.name}/robots.txt"
        host.tries += 1
        try:
            with get(address, headers=self.headers, timeout=how.timeout, private=how.private) as reply:
                rules = read_rules(reply, how.slowest)
        except Misled:
            rules = RobotRules()
        except Failed as error:
            wait = BACKOFF * 2 ** (host.tries - 1) if error.wait is None else error.wait
            if not error.again or wait > PATIENCE or host.tries >= TRIES:
                host.shut = _short(error)
            return max(wait, host.pause) if not host.shut else host.pause, job
        host.rules[scheme], host.tries = (rules, time.monotonic() + DAY), 0
        host.pause = max(host.pause, min(rules.delay, PATIENCE))
        return host.pause, job

    def _count(self, outcome: str) -> None:
        with self.lock:
            self.counts[outcome] += 1
            self.shown.add(1, f"{self.counts['got']:,} got")


def _move(job: _Job, fault_of: Callable[[str], str], target: str) -> NoReturn:
    """A redirect is not followed here and now: the job is to wait for its turn at the other address."""
    if target in (job.url, *job.hops):
        raise Failed("redirects in a circle")
    if len(job.hops) == REDIRECTS:
        raise Failed(f"more than {REDIRECTS} redirects")
    job.hops += (target,)
    if fault := fault_of(target):
        raise _Astray(behind(fault))
    raise _Moved


def _short(error: Failed) -> str:
    """The reason without numbers and names, so that it can be counted."""
    if isinstance(error, Refused):
        return "refused address"
    for begins, short in (("longer than", "too large"), ("took longer", "too slow")):
        if error.reason.startswith(begins):
            return short
    return error.reason.partition(":")[0]
