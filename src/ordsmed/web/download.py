"""Download one file: resume where it was cut off, stop when it is too slow, retry while bytes arrive.

.NAME.part        the bytes received so far
.NAME.part.json   their address, and the tag by which the server identifies the file's version
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

GAIN = 1_000_000  # new bytes after which the attempts are counted from 0 again


@dataclass(frozen=True)
class FetchOptions:
    """Options of the command `fetch`."""

    mirror: str | None
    allow_missing: bool
    attempts: int
    private: bool
    timeout: float
    slowest: int
    sleep: Callable[[float], None]


def pull(url: str, part: Path, file: File, options: FetchOptions) -> None:
    """Download to `part`. Each attempt resumes the previous one; attempts that received bytes do not count."""
    while True:
        before = _length(part)
        try:
            return retry(options.attempts, lambda: _once(url, part, file, options), sleep=options.sleep)
        except Failed as error:
            if not error.again or _length(part) - before < GAIN:
                raise


def _once(url: str, part: Path, file: File, options: FetchOptions) -> None:
    facts, start, headers = resume_facts(part), _length(part), {}
    if start and facts.get("url") == url:
        headers = {"Range": f"bytes={start}-", "If-Range": facts["tag"]}
    with get(url, headers=headers, timeout=options.timeout, private=options.private) as reply:
        span = reply.headers.get("Content-Range", "")
        if reply.status == 416 and span == f"bytes */{start}":
            return  # it was already complete
        if reply.status == 206 and span.startswith(f"bytes {start}-") and _tag(reply) in (None, facts.get("tag")):
            _save(reply, url, part, start, file, options)
        elif reply.status == 200:
            _save(reply, url, part, 0, file, options)
        elif reply.status in (206, 416):
            drop(part)
            raise Failed(f"HTTP {reply.status}", again=True)
        else:
            failure = reply.failure()
            failure.again |= reply.status == 403  # some servers answer 403 to too many requests
            raise failure


def _save(reply: Reply, url: str, part: Path, start: int, file: File, options: FetchOptions) -> None:
    """Write the body of an answer to `part`, after its first `start` bytes."""
    # some servers send Content-Encoding: gzip with a .gz file; it must be stored as it is, not unpacked
    packed = file.path.lower().endswith((".gz", ".tgz"))
    coded = not packed and reply.headers.get("Content-Encoding", "identity").lower() != "identity"
    length = reply.headers.get("Content-Length", "")
    total = start + int(length) if length.isdecimal() and not coded else file.size or 0
    if file.size is not None and total != file.size:
        raise DataError(url, many(total, "byte"), f"{file.size:,}", "fix the table")
    limit = file.size if file.size is not None else file.longest
    with files.survive_disk(part), part.open("ab" if start else "wb") as written:
        if not start:
            # without a version (ETag or Last-Modified) the download cannot be resumed
            tag = None if coded else _tag(reply)
            if tag:
                files.write_json(_facts_path(part), {"url": url, "tag": tag})
            else:
                _facts_path(part).unlink(missing_ok=True)
        longest = None if limit is None else max(limit - start, 0)
        with Progress(f"fetch {file.path}", total / 1e6, "MB", done=start / 1e6) as shown:
            try:
                for block in _check_speed(reply.blocks(longest, packed=packed), options):
                    written.write(block)
                    shown.add(len(block) / 1e6)
            except Failed as error:
                if not error.again:  # the received bytes are useless
                    drop(part)
                raise


def _check_speed(blocks: Iterator[bytes], options: FetchOptions) -> Iterator[bytes]:
    """Yield the blocks. Raise `Failed` if they arrive too slowly."""
    start, received = time.monotonic(), 0
    for block in blocks:
        received += len(block)
        passed = time.monotonic() - start
        if passed > options.timeout:
            if received < options.slowest * passed:
                raise Failed("too slow", again=True)
            start, received = time.monotonic(), 0
        yield block


def _tag(reply: Reply) -> str | None:
    tag = reply.headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else reply.headers.get("Last-Modified")


def resume_facts(part: Path) -> dict[str, Any]:
    return files.read_json(_facts_path(part)) if _facts_path(part).exists() else {}


def _facts_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def drop(part: Path) -> None:
    part.unlink(missing_ok=True)
    _facts_path(part).unlink(missing_ok=True)


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
