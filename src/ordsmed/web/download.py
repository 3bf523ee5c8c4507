"""One file downloaded: resumed where it was cut off, given up where it only trickles, tried again while bytes come.

.NAME.part        what came so far
.NAME.part.json   whose bytes these are: its address, and the tag by which a server knows the file
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.say import Progress, many
from ordsmed.web.fetch_tables import File
from ordsmed.web.http import Failed, Reply, get, retry

GAIN = 1_000_000  # bytes that are worth the same number of attempts again


@dataclass(frozen=True)
class FetchOptions:
    """How files are fetched."""

    mirror: str | None
    allow_missing: bool
    attempts: int
    private: bool
    timeout: float
    slowest: int
    sleep: Callable[[float], None]


def pull(url: str, part: Path, file: File, way: FetchOptions) -> None:
    """An attempt goes on where the last one was cut off, and new ones are granted while bytes come."""
    while True:
        before = _length(part)
        try:
            return retry(way.attempts, lambda: _once(url, part, file, way), sleep=way.sleep)
        except Failed as error:
            if not error.again or _length(part) - before < GAIN:
                raise


def _once(url: str, part: Path, file: File, way: FetchOptions) -> None:
    begun, start, headers = resume_facts(part), _length(part), {}
    if start and begun.get("url") == url:
        headers = {"Range": f"bytes={start}-", "If-Range": begun["tag"]}
    with get(url, headers=headers, timeout=way.timeout, private=way.private) as reply:
        span = reply.headers.get("Content-Range", "")
        if reply.status == 416 and span == f"bytes */{start}":
            return  # it was whole
        if reply.status == 206 and span.startswith(f"bytes {start}-") and _tag(reply) in (None, begun.get("tag")):
            _save(reply, url, part, start, file, way)
        elif reply.status == 200:
            _save(reply, url, part, 0, file, way)
        elif reply.status in (206, 416):
            drop(part)
            raise Failed(f"HTTP {reply.status}", again=True)
        else:
            failure = reply.failure()
            failure.again |= reply.status == 403  # some servers say that to whoever comes too often
            raise failure


def _save(reply: Reply, url: str, part: Path, start: int, file: File, way: FetchOptions) -> None:
    """Write a body behind the first `start` bytes."""
    packed = file.path.lower().endswith((".gz", ".tgz"))  # some servers take that for a Content-Encoding
    coded = not packed and reply.headers.get("Content-Encoding", "identity").lower() != "identity"
    length = reply.headers.get("Content-Length", "")
    total = start + int(length) if length.isdecimal() and not coded else file.size or 0
    if file.size is not None and total != file.size:
        raise DataError(url, many(total, "byte"), f"{file.size:,}", "mend the table")
    limit = file.size if file.size is not None else file.longest
    with files.survive_disk(part), part.open("ab" if start else "wb") as written:
        if not start:
            # note whose first bytes these are; without a tag nobody can go on with them
            tag = None if coded else _tag(reply)
            if tag:
                files.write_json(_beside(part), {"url": url, "tag": tag})
            else:
                _beside(part).unlink(missing_ok=True)
        longest = None if limit is None else max(limit - start, 0)
        with Progress(f"fetch {file.path}", total / 1e6, "MB", done=start / 1e6) as shown:
            try:
                for block in _lively(reply.blocks(longest, packed=packed), way):
                    written.write(block)
                    shown.add(len(block) / 1e6)
            except Failed as error:
                if not error.again:  # what came is of no use
                    drop(part)
                raise


def _lively(blocks: Iterator[bytes], way: FetchOptions) -> Iterator[bytes]:
    """Give up a body that only trickles."""
    began, came = time.monotonic(), 0
    for block in blocks:
        came += len(block)
        passed = time.monotonic() - began
        if passed > way.timeout:
            if came < way.slowest * passed:
                raise Failed("too slow", again=True)
            began, came = time.monotonic(), 0
        yield block


def _tag(reply: Reply) -> str | None:
    """By what a server knows that a file is still the same."""
    tag = reply.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified")


def resume_facts(part: Path) -> dict[str, Any]:
    return files.read_json(_beside(part)) if _beside(part).exists() else {}


def _beside(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def drop(part: Path) -> None:
    part.unlink(missing_ok=True)
    _beside(part).unlink(missing_ok=True)


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
