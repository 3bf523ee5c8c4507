"""A folder of downloaded pages: WARC parts, a log with the outcome of every address, and indexes of address lists.

    a page, or why it is missing -> pages-00000.warc.gz   one gzip member per page, readable by any WARC tool
                                    outcomes.jsonl        one line per address, or per retry of an address:
                                        {"url": "...", "tries": 1, "when": "...", "status": 200, "place": [0, 0, 5120]}
                                        {"url": "...", "tries": 3, "when": "...", "reason": "HTTP 503", "again": true}
    a list of addresses          -> order-NAME.bin        the position of each address's page, in 16 bytes

`final` in a line is the address that redirects led to. If a corpus's rules exclude that address, its order has no page
for the line; another corpus may include it.

A line is written after its page. When a killed crawl resumes, it cuts off bytes after the last page in the log, and
keeps every page in the log. An existing part is never appended to. About 40 bytes per address are kept in memory.
"""

from __future__ import annotations

import datetime
import gzip
import threading
import uuid
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypedDict

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.files import survive_disk, sync, writing
from ordsmed.base.say import many, say
from ordsmed.text import read
from ordsmed.web.urls import number

LOG = "outcomes.jsonl"
PART = 1 << 30  # bytes of a part, after which a new part starts
BATCH = 1 << 16
NEVER = ("not downloaded", True)
SLOT = np.dtype([("byte", "<u8"), ("part", "<u4"), ("length", "<u4")])  # position of a page; length 0: no page
ROW = np.dtype([("number", "<u8"), *SLOT.descr, ("why", "<u2"), ("tries", "<u2")])


@dataclass(frozen=True)
class Page:
    """The answer of an address."""

    url: str
    content_type: str
    body: bytes
    final: str = ""  # the address that redirects led to


class Outcomes:
    """The outcomes in the log: for each address the position of its page, or the reason and number of failed tries."""

    def __init__(self, folder: Path, fault_of: Callable[[str], str] | None = None) -> None:
        self.folder, self.fault_of = folder, fault_of
        self.reasons = [NEVER]  # (reason, whether a retry may help); `why` in `rows` is an index of this list
        self.sizes = {int(path.name[6:11]): path.stat().st_size for path in folder.glob("pages-*.warc.gz")}
        self.ends = dict.fromkeys(self.sizes, 0)  # end offset of the last complete page
        self.log_end = self.lost = 0
        sentinel = (2**64 - 1, 0, 0, 0, 0, 0)  # makes every search end on a row
        batches = [np.array(batch, ROW) for batch in _batches(self._rows(), BATCH)]
        rows = np.concatenate([np.array([sentinel], ROW), *batches])[::-1]
        self.rows = rows[np.unique(rows["number"], return_index=True)[1]]  # the last line of each address
        self._numbers = memoryview(np.ascontiguousarray(self.rows["number"]).data)

    def tries(self, url: str, limit: int) -> int | None:
        """Return how often an address was tried; None if it has a page or must not be tried again."""
        key = number(url)
        at = bisect_left(self._numbers, key)
        if self._numbers[at] != key:
            return 0
        row = self.rows[at]
        may_retry = not row["length"] and self.reasons[row["why"]][1] and row["tries"] < limit
        return int(row["tries"]) if may_retry else None

    def find(self, urls: list[str]) -> tuple[Any, Any]:
        """Return for each address the position of its page, as SLOT, and the index in `reasons` if it has no page."""
        numbers = np.array([number(url) for url in urls], np.uint64)
        rows = self.rows[np.searchsorted(self.rows["number"], numbers)]
        rows[rows["number"] != numbers] = 0
        return np.array(rows[list(SLOT.names or ())], SLOT), rows["why"]

    def _rows(self) -> Iterator[tuple[int, int, int, int, int, int]]:
        import msgspec

        decode, codes = msgspec.json.Decoder(_Line).decode, {NEVER: 0}
        for path, line in _lines(self.folder / LOG):
            self.log_end += len(line)
            try:
                text = decode(line)
                key, tries = number(text["url"]), min(text["tries"], 65535)
            except (msgspec.DecodeError, KeyError, RecursionError) as error:
                remedy = "remove that line, so that its address is tried again"
                raise DataError(path, f"is damaged: {error}", "one outcome per line", remedy) from None
            part, byte, length = text.get("place", (0, 0, 0))
            reason = (text.get("reason", ""), text.get("again", False))
            final = text.get("final", "") if self.fault_of else ""
            fault = self.fault_of(final) if self.fault_of and final else ""
            if length and byte + length > self.sizes.get(part, 0):
                self.ends.setdefault(part, 0)
                self.lost += 1
            elif length:
                self.ends[part] = max(self.ends[part], byte + length)
                if not fault:
                    yield key, byte, part, length, 0, tries
            elif final and not fault:  # excluded by former rules, but not by the current ones
                yield key, 0, 0, 0, 0, 0
                continue
            if fault or not length:
                reason = (redirect_reason(fault), False) if fault else reason
                if reason not in codes:
                    codes[reason] = len(self.reasons)
                    self.reasons.append(reason)
                yield key, 0, 0, 0, codes[reason], tries


class Pages:
    """A folder of pages opened for writing by several threads of one process."""

    def __init__(self, folder: Path, fault_of: Callable[[str], str] | None = None) -> None:
        with survive_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.folder, self.outcomes = folder, Outcomes(folder, fault_of)
            self._cut_incomplete()
            self._log = (folder / LOG).open("ab", buffering=0)
        self._lock = threading.Lock()
        self._part: IO[bytes] | None = None
        self._number, self._at = max(self.outcomes.ends, default=-1), 0

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        with self._lock:
            if not self._log.closed:
                self._close_part()
                self._log.close()
                sync(self.folder / LOG)
            elif self._part is not None:
                self._part.close()

    def keep(self, page: Page, tries: int) -> None:
        """Write a page, then its line in the log."""
        member = gzip.compress(_record(page), 6, mtime=0)
        final = {"final": page.final} if page.final not in ("", page.url) else {}
        self._append(member, {"url": page.url, "tries": tries, "when": _now(), "status": 200, **final})

    def miss(self, url: str, tries: int, reason: str, again: bool, final: str = "") -> None:
        """Log why an address has no page, and whether a retry may help. `final`: an excluded target of its redirect."""
        target = {"final": final} if final else {}
        self._append(b"", {"url": url, "tries": tries, "when": _now(), "reason": reason, "again": again, **target})

    def _append(self, member: bytes, line: dict[str, Any]) -> None:
        import msgspec

        with self._lock:
            if self._log.closed:  # writing failed or ended while this page was downloaded
                return
            try:
                with survive_disk(self.folder):
                    if member:
                        line["place"] = self._store(member)
                    _write(self._log, msgspec.json.encode(line) + b"\n")
            except BaseException:
                self._log.close()
                raise

    def _store(self, member: bytes) -> tuple[int, int, int]:
        if self._part is None or self._at >= PART:
            self._close_part()
            self._number, self._at = self._number + 1, 0
            self._part = part_path(self.folder, self._number).open("xb", buffering=0)
        _write(self._part, member)
        self._at += len(member)
        return self._number, self._at - len(member), len(member)

    def _cut_incomplete(self) -> None:
        log, outcomes = self.folder / LOG, self.outcomes
        if log.exists() and log.stat().st_size > outcomes.log_end:
            say(f"{log}: removed an incomplete last line")
            _cut(log, outcomes.log_end)
        for number_, size in outcomes.sizes.items():
            path, end = part_path(self.folder, number_), outcomes.ends[number_]
            if size > end:
                say(f"{path}: removed {size - end:,} bytes of pages that are incomplete or not in the log")
                _cut(path, end)
        if outcomes.lost:
            say(f"{self.folder}: {many(outcomes.lost, 'page', 'is', 'are')} only in the log; downloaded again")

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
            sync(part_path(self.folder, self._number))


def redirect_reason(fault: str) -> str:
    """Return the logged reason for a page whose redirect leads to an address that the rules exclude for `fault`."""
    return f"{fault} behind a redirect"


def lay_out(
    urls: Iterable[str], folder: Path, order: Path, fault_of: Callable[[str], str] | None = None
) -> Counter[str]:
    """Write the position of each address's page, in order, to `order`. Return counts of reasons for missing pages."""
    outcomes, missing = Outcomes(folder, fault_of), Counter[str]()
    with writing(order) as file:
        for batch in _batches(urls, BATCH):
            slots, codes = outcomes.find(batch)
            file.write(slots.tobytes())
            for code, count in zip(*np.unique(codes[slots["length"] == 0], return_counts=True), strict=True):
                missing[outcomes.reasons[code][0]] += int(count)
    return missing


def pages_in_order(order: Path, start: int = 0, stop: int | None = None) -> Iterator[Page]:
    """Yield the pages of an order file, from its byte `start` to `stop`. The pages are in its folder."""
    count = -1 if stop is None else (stop - start) // SLOT.itemsize
    for byte, part, length in np.fromfile(order, SLOT, count, offset=start).tolist():
        if length:
            read.tally().bytes += length
            yield _page(part_path(order.parent, part), byte, length)


def bytes_laid_out(order: Path, start: int = 0, stop: int | None = None) -> int:
    """Return the number of compressed bytes of the pages in bytes `start` to `stop` of an order file."""
    count = -1 if stop is None else (stop - start) // SLOT.itemsize
    return int(np.fromfile(order, SLOT, count, offset=start)["length"].sum(dtype=np.int64))


def part_path(folder: Path, part: int) -> Path:
    return folder / f"pages-{part:05d}.warc.gz"


class _Line(TypedDict, total=False):
    url: str
    tries: int
    place: tuple[int, int, int]
    reason: str
    again: bool
    final: str


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.exists():
        with path.open("rb") as file:
            yield from ((f"{path}:{row}", line) for row, line in enumerate(file, 1) if line.endswith(b"\n"))


def _batches(things: Iterable[Any], count: int) -> Iterator[list[Any]]:
    iterator = iter(things)
    while batch := list(islice(iterator, count)):
        yield batch


def _record(page: Page) -> bytes:
    kind = " ".join(page.content_type.split())
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(page.body)}\r\n\r\n"
    block = answer.encode("latin-1", "replace") + page.body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {page.url}\r\nWARC-Date: {_now()}\r\n"
        f"WARC-Record-ID: <{uuid.uuid4().urn}>\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def _page(path: Path, byte: int, length: int) -> Page:
    try:
        with path.open("rb") as file:
            file.seek(byte)
            head, answer, body = gzip.decompress(file.read(length)).split(b"\r\n\r\n", 2)
        return Page(_value(head, "WARC-Target-URI"), _value(answer, "Content-Type"), body[:-4])
    except (OSError, EOFError, zlib.error, ValueError) as error:
        remedy = f"remove {path.name}, so that its pages are downloaded again"
        raise DataError(path, f"byte {byte:,}: incomplete page ({error})", "", remedy) from None


def _value(head: bytes, name: str) -> str:
    return head.decode("utf-8", "replace").partition(f"\r\n{name}: ")[2].partition("\r\n")[0]


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all data to an unbuffered file: after an error, no buffer can write more after a partly written page."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def _cut(path: Path, end: int) -> None:
    with path.open("r+b") as file:
        file.truncate(end)
    if not end and path.name != LOG:
        path.unlink()


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"
