"""The command `fetch`: download the files of a fetch table, check and record them.

squad.toml -> out/squad/train-v1.1.json, ..., .fetched.jsonl

a file that exists as recorded -> done
another file -> .NAME.part, new or resumed -> check size and hashes -> record -> rename -> unpack
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ordsmed.base import files, run
from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError
from ordsmed.base.keys import bytes_key
from ordsmed.base.say import Progress, many, size
from ordsmed.text import read
from ordsmed.web.download import FetchOptions, drop, pull, resume_facts
from ordsmed.web.fetch_tables import FetchTable, File, List, find
from ordsmed.web.http import BLOCK, Failed, Refused
from ordsmed.web.unpack import inside, unpack

HASHES = {40: "sha1", 64: "sha256", 32: "md5"}  # by number of digits
RECORD = ".fetched.jsonl"
HUNG = 3  # timeouts in a row, after which no more files are requested from a host
PRIVATE = "`--private` allows it"
NETWORK = "check the network; with a proxy set `https_proxy`; `--mirror FOLDER|URL` gets the files from another source"
STALE = "remove it to download it again, or give another `--out`"


@dataclass
class TableFetch:
    """A fetch in progress: the folder of a table, its record, and the outcomes of this run."""

    folder: Path
    options: FetchOptions
    record: dict[str, dict[str, Any]]
    fetched: int = 0
    bytes: int = 0
    existing: int = 0
    missing: Counter[str] = field(default_factory=Counter)  # number of files by reason
    first: OrdsmedError | None = None  # the first error
    remedy: str = ""  # remedy of the first file that could not be fetched
    hung: Counter[str] = field(default_factory=Counter)  # timeouts in a row by host


def fetch(
    names: Sequence[str],
    *,
    out: str = "work/fetch",
    mirror: str | None = None,
    allow_missing: bool = False,
    attempts: int = 3,
    private: bool = False,
    timeout: float = 20.0,
    slowest: int = 1000,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Fetch the missing files of these tables. Return a summary line for each table.

    A server has `timeout` seconds to answer and to send each next piece. Stop a download with fewer than `slowest`
    bytes per second over that time. Try failed downloads `attempts` times, counted again after each MB.
    """
    for name, value, minimum in (("attempts", attempts, 1), ("slowest", slowest, 0)):
        if value < minimum:
            raise RecipeError(f"--{name}", f"found {value}", f"{minimum} or more")
    if not 0 < timeout < math.inf:
        raise RecipeError("--timeout", f"found {timeout:g}", "more than 0 seconds")
    options = FetchOptions(mirror, allow_missing, attempts, private, timeout, slowest, sleep)
    if mirror is not None and "://" not in mirror and not Path(mirror).is_dir():
        raise DataError(mirror, "no such folder", "a mirror: a folder or an address", "give another `--mirror`")
    tables = [find(name) for name in names]  # an unknown name raises an error before anything is fetched
    return [_fetch(Path(out) / title, table, options) for title, table in tables]


def _fetch(folder: Path, table: FetchTable, options: FetchOptions) -> str:
    with run.locked(folder):
        with files.survive_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        state = TableFetch(folder, options, _read_record(folder / RECORD))
        for file in table.file:
            _try(file, state)
        for listed in table.list:
            _fetch_listed(listed, state)
    if state.first:
        number = state.missing.total()
        problem = f"{many(number, 'file')} could not be fetched{_reasons(state)}; the other "
        problem += f"{state.fetched + state.existing:,} are kept"
        raise state.first if number == 1 else RunError(folder, problem, "", f"the first error: {state.first}")
    if state.missing and not state.fetched + state.existing:
        remedy = state.remedy
        raise RunError(folder, f"nothing was fetched: {state.missing.total():,} skipped{_reasons(state)}", "", remedy)
    summary = f"{folder}: {state.fetched:,} fetched ({size(state.bytes)}), {state.existing:,} already there"
    return summary + (f", {state.missing.total():,} skipped{_reasons(state)}" if state.missing else "")


def _fetch_listed(listed: List, state: TableFetch) -> None:
    path = Path(listed.url)
    if "://" in listed.url:
        path = state.folder / _file_name(listed.url)
        _try(File(path.name, listed.url), state)
        if not path.exists():
            return
    elif not path.is_file():
        raise DataError(path, "no such file", "addresses, one per line", "write it, or give another in your own table")
    urls = list(dict.fromkeys(line for line in map(str.strip, read.lines(path)) if line and line[0] != "#"))
    with Progress(f"fetch {state.folder.name}", len(urls), "files") as shown:
        for url in urls:
            _try(File(_file_name(url), url, longest=listed.longest), state)
            shown.add(1)


def _try(file: File, state: TableFetch) -> None:
    try:
        _ensure(file, state)
    except Failed as error:
        state.missing[error.reason] += 1
        remedy = _remedy(error)
        state.remedy = state.remedy or remedy
        if remedy != PRIVATE:
            remedy = "; ".join(filter(None, (remedy, "`--allow-missing` continues without it")))
        if not state.options.allow_missing:
            state.first = state.first or RunError(file.url or file.path, error.reason, "", remedy)
    except DataError as error:
        state.missing["not as expected"] += 1
        state.first = state.first or error


def _remedy(error: Failed) -> str:
    if isinstance(error, Refused) and "private" in error.reason:
        return PRIVATE
    return NETWORK if error.unreached else "try again later" if error.again else ""


def _reasons(state: TableFetch) -> str:
    return f" ({', '.join(f'{reason}: {number:,}' for reason, number in state.missing.most_common(5))})"


def _ensure(file: File, state: TableFetch) -> None:
    path = state.folder / file.path
    if _is_there(path, file, state):
        state.existing += 1
    else:
        _install(path, file, state)
        state.fetched += 1
        state.bytes += path.stat().st_size
    if file.unpack is not None:
        known = state.record[file.path]
        unpacked = known.get("unpacked", {})
        unpack(path, state.folder / file.unpack, unpacked, lambda names: _append({**known, "unpacked": names}, state))


def _is_there(path: Path, file: File, state: TableFetch) -> bool:
    """Return whether the file exists. Raise DataError if it is another than the table's."""
    if not path.exists():
        return False
    known = state.record.get(file.path)
    if known is None:
        wanted = _wanted(file, state)
        if not wanted:
            raise DataError(path, "exists, but its origin is unknown", "", STALE)
        _add_to_record(file, path, _check(path, path, wanted, file.size), None, state)
    elif known["url"] != file.url:
        raise DataError(path, f"was fetched from {known['url']}", file.url, STALE)
    elif file.sha256 and file.sha256.lower() != known["sha256"]:
        raise DataError(path, f"sha256 {known['sha256']}", file.sha256, STALE)
    elif [path.stat().st_size, path.stat().st_mtime_ns] != [known["size"], known["time"]]:
        _check(path, path, {"sha256": known["sha256"]}, known["size"])
    return True


def _install(path: Path, file: File, state: TableFetch) -> None:
    part = path.with_name(f".{path.name}.part")
    with files.survive_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    wanted = _wanted(file, state)
    _download(file, part, state)
    tag = resume_facts(part).get("tag")
    try:
        sha256 = _check(part, path, wanted, file.size)
    except DataError:
        drop(part)
        raise
    with files.survive_disk(path):
        files.sync(part)
        _add_to_record(file, part, sha256, tag, state)
        part.replace(path)
        drop(part)
        files.sync(path.parent)


def _check(path: Path, folder: Path, wanted: dict[str, str], length: int | None) -> str:
    length_here = path.stat().st_size
    remedy = STALE if path == folder else "the download was removed; try again, or fix the table"
    if length is not None and length_here != length:
        raise DataError(folder, many(length_here, "byte"), f"{length:,}", remedy)
    digests = {kind: hashlib.new(kind, usedforsecurity=False) for kind in {"sha256", *wanted}}
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            for digest_of_kind in digests.values():
                digest_of_kind.update(block)
    for kind, digest in wanted.items():
        if digests[kind].hexdigest() != digest.lower():
            raise DataError(folder, f"{kind} {digests[kind].hexdigest()}", digest, remedy)
    return digests["sha256"].hexdigest()


def _wanted(file: File, state: TableFetch) -> dict[str, str]:
    """Return the expected hashes of a file, from its table and from a list of hashes."""
    known = {kind: digest for kind in HASHES.values() if (digest := getattr(file, kind))}
    if file.sums is None:
        return known
    name = file.listed or _last_part(file.url)
    lines = (line.strip().partition(" ") for line in _sums(file, file.sums, state).splitlines())
    digests = {
        digest.lower() for digest, _, path in lines if fnmatchcase(_last_part(path.strip().removeprefix("*")), name)
    }
    digest = min(digests, default="")
    kind = HASHES.get(len(digest)) if re.fullmatch("[0-9a-f]+", digest) else None
    if len(digests) != 1 or kind is None:
        raise DataError(file.sums, f"{len(digests)} hashes of {name}", "a single line `HASH  NAME`", "fix the table")
    return {**known, kind: digest}


def _sums(file: File, url: str, state: TableFetch) -> str:
    """Return the text of a list of hashes. It is not stored, because it may change."""
    part = (state.folder / file.path).with_name(f".{Path(file.path).name}.sums")
    try:
        _download(File(inside(_last_part(url)) or "sums", url, longest=64 << 20), part, state)
    except Failed as error:
        reason = f"the list of its hashes, {_last_part(url)}: {error.reason}"
        raise type(error)(reason, again=error.again, wait=error.wait, unreached=error.unreached) from None
    text = part.read_text(encoding="utf-8", errors="replace")
    drop(part)
    return text


def _download(file: File, part: Path, state: TableFetch) -> None:
    """Download a file to `part` from the first source that has it: its address, or its two paths in the mirror."""
    failures = [Failed("not in the mirror")]
    for source in _sources(file, state):
        host = "" if isinstance(source, Path) else urlsplit(source).netloc
        try:
            if isinstance(source, Path):
                if not source.is_file():
                    raise Failed("not in the mirror")
                with files.survive_disk(part):
                    drop(part)
                    shutil.copyfile(source, part)
                return
            if state.hung[host] >= HUNG:
                raise Failed("not requested, because its host hangs", again=True)
            pull(source, part, file, state.options)
            state.hung[host] = 0
            return
        except Failed as error:
            state.hung[host] += error.unreached or error.reason in ("timed out", "too slow")
            failures.append(error)
    raise next((error for error in failures if error.again), failures[-1])


def _sources(file: File, state: TableFetch) -> list[str | Path]:
    mirror = state.options.mirror
    if mirror is None and not file.url:
        location = f"{state.folder.name}/{file.path}"
        raise Failed(f"its address is unknown; `--mirror FOLDER` copies it from FOLDER/{location}")
    if mirror is None:
        return [file.url]
    named, general = f"{state.folder.name}/{file.path}", re.sub("(?i)^[a-z]+://|[?#].*", "", file.url)
    if "://" in mirror:
        return [f"{mirror.rstrip('/')}/{location}" for location in (named, general) if location]
    return [Path(mirror) / location for location in (named, unquote(general)) if inside(location)]


def _last_part(url: str) -> str:
    return re.sub("[?#].*", "", url).rpartition("/")[2]


def _file_name(url: str) -> str:
    end = re.sub(r"[^A-Za-z0-9._-]+", "_", unquote(_last_part(url)))[-80:]
    return f"{bytes_key(url.encode(), 10)}-{end}"


def _read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Read the record. The last line of a file counts; incomplete lines are ignored."""
    record = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, KeyError):
            known = json.loads(line)
            record[known["path"]] = known
    return record


def _add_to_record(file: File, path: Path, sha256: str, tag: str | None, state: TableFetch) -> None:
    facts, before = path.stat(), state.record.get(file.path, {})
    known = {"path": file.path, "url": file.url, "size": facts.st_size, "sha256": sha256, "tag": tag}
    known |= {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "time": facts.st_mtime_ns}
    if before.get("sha256") == sha256:  # the unpacked files still belong to it
        known["unpacked"] = before.get("unpacked", {})
    _append(known, state)


def _append(known: dict[str, Any], state: TableFetch) -> None:
    state.record[known["path"]] = known
    path = state.folder / RECORD
    with files.survive_disk(path), path.open("a+b") as written:
        if written.tell() and (written.seek(-1, os.SEEK_END), written.read(1))[1] != b"\n":  # the last line was cut off
            written.write(b"\n")
        written.write(json.dumps(known, ensure_ascii=False).encode() + b"\n")
        written.flush()
        os.fsync(written.fileno())
