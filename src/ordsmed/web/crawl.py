"""Download many pages politely into a folder. A killed crawl can be resumed.

    addresses -> a queue for each host -> threads: robots.txt, then one page at a time and a pause -> web/pages.py

A host gets one request at a time, whatever the number of threads. The target of a redirect waits in the queue of its
host, under that host's robots.txt and pause. Temporary failures (a timeout, status 503) are retried after a pause,
again when the folder is next resumed, and no more after a number of tries in total. Finished addresses are not
requested again. Requests in progress when the process is killed are.
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
from ordsmed.text.text_hashes import SeenTexts
from ordsmed.web.http import REDIRECTS, BadRedirect, Failed, Refused, get
from ordsmed.web.pages import Page, Pages, redirect_reason
from ordsmed.web.robots import NAME, RobotRules, read_rules
from ordsmed.web.urls import number

KINDS = ("", "text/html", "application/xhtml+xml", "text/plain")
TRIES = 3  # tries of an address before the folder is next resumed
BACKOFF = 2.0  # seconds before the second try; doubled for each further one
PATIENCE = 60.0  # seconds: a host that requests a longer pause is skipped until the folder is next resumed
DEAD = 3  # failed addresses in a row, after which a host is skipped too
DAY = 86_400.0  # seconds after which robots.txt is requested again
WAITING = 100_000  # maximum of addresses in the queues
IDLE_HOSTS = 4096  # maximum of hosts without a waiting address that are remembered


@dataclass(frozen=True)
class Crawl:
    """Settings for downloading pages."""

    HOW: ClassVar[tuple[str, ...]] = (
        "threads",
        "pause",
        "robots",
        "contact",
        "timeout",
        "slowest",
        "attempts",
        "download",
    )

    threads: int = 16
    "pages downloaded at the same time"
    pause: float = 1.0
    "seconds between two requests to one host"
    robots: bool = True
    "obey robots.txt"
    contact: str = ""
    "your e-mail address or web page, sent with every request"
    private: bool = False
    "also download pages of this machine and its private network"
    largest: int = 10_000_000
    "maximum bytes of a page; longer pages are skipped"
    timeout: float = 30.0
    "seconds to wait for an answer, and for each next piece of it"
    slowest: float = 120.0
    "maximum seconds for a complete page"
    attempts: int = 6
    "maximum tries of an address in total, over all builds of the corpus"

    def __post_init__(self) -> None:
        at_least(self, threads=1, pause=0, largest=1, attempts=1)
        for name in ("timeout", "slowest"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted more than 0")
        if not (self.contact.isascii() and self.contact.isprintable()):
            raise ValueError(f"contact: found {self.contact!r}; wanted one line of ASCII")


def crawl(
    urls: Iterable[str], folder: Path, settings: Crawl, total: int = 0, fault_of: Callable[[str], str] = lambda _: ""
) -> Counter[str]:
    """Download the missing pages. Return counts of downloaded and existing pages, and of reasons for failures.

    `total` is for the progress bar. `fault_of` returns why the rules exclude the target of a redirect, or "".
    """
    with locked(folder), Pages(folder, fault_of) as pages, Progress("crawl", total, "pages") as progress:
        state = _CrawlState(pages, settings, progress, fault_of)
        threads = [threading.Thread(target=state.run, daemon=True) for _ in range(settings.threads)]
        for thread in threads:
            thread.start()
        try:
            state.feed(urls)
            for thread in threads:
                thread.join()
        finally:
            state.queue.stop()
        if state.error:
            raise state.error
        return state.counts


@dataclass(eq=False)
class _Job:
    url: str
    former_tries: int  # in former runs
    tries: int = 0  # in this run
    hops: tuple[str, ...] = ()  # targets of redirects so far

    @property
    def at(self) -> str:
        return self.hops[-1] if self.hops else self.url

    @property
    def host(self) -> str:
        return urlsplit(self.at).netloc


class _LeftOutTarget(Failed):
    """A redirect leads to an address that the rules exclude."""


class _Moved(Exception):
    """The answer is a redirect; its target was added to the job's hops."""


@dataclass(eq=False)
class _Host:
    name: str
    pause: float
    jobs: deque[_Job] = field(default_factory=deque)
    ready: float = 0.0  # time of the next request
    # by scheme (http, https): the rules, and the time until which they hold
    rules: dict[str, tuple[RobotRules, float]] = field(default_factory=dict)
    tries: int = 0  # tries of its robots.txt
    failed: int = 0  # failed addresses in a row
    shut: str = ""  # reason why it is skipped in this run


class _Queue:
    """Addresses by host, each waiting for its host's pause to end. Only one thread at a time works on a host."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.changed = threading.Condition()
        self.hosts: dict[str, _Host] = {}  # hosts with addresses
        self.idle: OrderedDict[str, _Host] = OrderedDict()  # hosts without
        self.turns: list[tuple[float, int, _Host]] = []  # a heap of waiting hosts by the time of their next request
        self.numbers = itertools.count()
        self.waiting, self.closed, self.stopped = 0, False, False

    def put(self, job: _Job) -> bool:
        """Add an address when there is room. Return False if the crawl was stopped."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting < WAITING or self.stopped)
            self._append(job)
            return not self.stopped

    def take(self) -> tuple[_Host, _Job] | None:
        """Return the next host that may get a request, and its address; None if the crawl is finished."""
        with self.changed:
            while not self.stopped and not (self.closed and not self.hosts):
                wait = self.turns[0][0] - time.monotonic() if self.turns else None
                if wait is not None and wait <= 0:
                    host = heapq.heappop(self.turns)[2]
                    self.waiting -= 1
                    return host, host.jobs.popleft()
                self.changed.wait(wait)
            return None

    def give_back(self, host: _Host, pause: float, again: _Job | None) -> None:
        """Release a host until its next request in `pause` seconds. `again`: a job to retry or that was redirected."""
        with self.changed:
            host.ready = time.monotonic() + pause
            if again and again.host != host.name:
                self._append(again)
            elif again:
                host.jobs.appendleft(again)
                self.waiting += 1
            if host.jobs:
                self._line_up(host)
            else:
                self.idle[host.name] = self.hosts.pop(host.name)
                if len(self.idle) > IDLE_HOSTS:
                    self.idle.popitem(last=False)
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def stop(self) -> None:
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
    def __init__(self, pages: Pages, settings: Crawl, progress: Progress, fault_of: Callable[[str], str]) -> None:
        self.pages, self.settings, self.progress, self.fault_of = pages, settings, progress, fault_of
        self.queue, self.counts, self.lock = _Queue(settings.pause), Counter[str](), threading.Lock()
        self.error: BaseException | None = None
        self.headers = {
            "User-Agent": f"{NAME}/{__version__}" + (f" (+{settings.contact})" if settings.contact else ""),
            "Accept": "text/html,application/xhtml+xml,text/plain;q=0.5",
            "Accept-Encoding": "gzip",
        }

    def feed(self, urls: Iterable[str]) -> None:
        """Queue the addresses that are neither finished nor given up."""
        queued = SeenTexts()
        for url in urls:
            tries = self.pages.outcomes.tries(url, self.settings.attempts)
            if tries is None or not queued.add(number(url)):
                self._count("already there")
            elif not self.queue.put(_Job(url, tries)):
                break
        self.queue.close()

    def run(self) -> None:
        """Work on the queue until it is empty: the main function of each thread."""
        try:
            while next_job := self.queue.take():
                host, job = next_job
                pause, again = self._turn(host, job)
                self.queue.give_back(host, pause, again)
        except BaseException as error:
            self.error = self.error or error
            self.queue.stop()

    def _turn(self, host: _Host, job: _Job) -> tuple[float, _Job | None]:
        """Send at most one request. Return the seconds until the host's next one, and the job if it is unfinished."""
        if host.shut:
            return self._miss(job, host.shut, again=True)
        if self.settings.robots:
            rules, until = host.rules.get(urlsplit(job.at).scheme, (None, 0.0))
            if rules is None or time.monotonic() > until:
                return self._request_robots(host, job)
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
        self.pages.keep(page, job.former_tries + job.tries + 1)
        self._count("got")
        return host.pause, None

    def _get(self, job: _Job) -> Page:
        options, move = self.settings, functools.partial(_move, job, self.fault_of)
        with get(job.at, headers=self.headers, timeout=options.timeout, private=options.private, hop=move) as reply:
            if reply.status != 200:
                raise reply.failure()
            kind = reply.headers.get("Content-Type", "")
            if kind.partition(";")[0].strip().lower() not in KINDS:
                raise Failed("no HTML or text")
            return Page(job.url, kind, b"".join(reply.blocks(options.largest, options.slowest)), reply.url)

    def _failed(self, host: _Host, job: _Job, error: Failed) -> tuple[float, _Job | None]:
        job.tries += 1
        wait = BACKOFF * 2 ** (job.tries - 1) if error.wait is None else error.wait
        again = error.again or (error.reason == "HTTP 403" and job.tries == 1)
        if again and wait <= PATIENCE and job.tries < TRIES and job.former_tries + job.tries < self.settings.attempts:
            return max(wait, host.pause), job
        host.failed = host.failed + 1 if error.again else 0
        if wait > PATIENCE or host.failed >= DEAD:
            host.shut = _short(error)
        self._miss(job, _short(error), error.again, job.at if isinstance(error, _LeftOutTarget) else "")
        return host.pause, None

    def _miss(self, job: _Job, reason: str, again: bool = False, final: str = "") -> tuple[float, None]:
        self.pages.miss(job.url, job.former_tries + max(job.tries, 1), reason, again, final)
        self._count(reason)
        return 0.0, None

    def _request_robots(self, host: _Host, job: _Job) -> tuple[float, _Job]:
        """Request robots.txt. Without an answer (404 is an answer), the host's pages are not requested."""
        scheme, options = urlsplit(job.at).scheme, self.settings
        address = f"{scheme}://{host.name}/robots.txt"
        host.tries += 1
        try:
            with get(address, headers=self.headers, timeout=options.timeout, private=options.private) as reply:
                rules = read_rules(reply, options.slowest)
        except BadRedirect:
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
            self.progress.add(1, f"{self.counts['got']:,} got")


def _move(job: _Job, fault_of: Callable[[str], str], target: str) -> NoReturn:
    """Stop the request at a redirect: the job waits for its turn at the host of the target."""
    if target in (job.url, *job.hops):
        raise Failed("redirects in a circle")
    if len(job.hops) == REDIRECTS:
        raise Failed(f"more than {REDIRECTS} redirects")
    job.hops += (target,)
    if fault := fault_of(target):
        raise _LeftOutTarget(redirect_reason(fault))
    raise _Moved


def _short(error: Failed) -> str:
    if isinstance(error, Refused):
        return "refused address"
    for begins, short in (("longer than", "too large"), ("took longer", "too slow")):
        if error.reason.startswith(begins):
            return short
    return error.reason.partition(":")[0]
