"""Checks of the home folder and the shared disk: space, quotas, caches, speed, locks, renames and clock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.say import duration, many, size
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.outcome import Outcome, error, ok, warning

HOME, SHARED = (1e8, 1e9), (1e9, 1e10)  # free bytes: error below the first, warning below the second
WRITTEN = 1 << 20  # bytes of the temporary file that is written
NEAR = 0.9  # share of a quota that causes a warning
CACHES = (
    "HF_HOME",
    "TORCH_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "XDG_CACHE_HOME",
    "PIP_CACHE_DIR",
    "APPTAINER_CACHEDIR",
)
HOME_DEFAULTS = ("TRITON_CACHE_DIR", "APPTAINER_CACHEDIR")  # in the home folder itself if the variable is not set
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
TEST_BYTES = 32 << 20  # bytes written to measure the speed of a disk
SLOW = 20e6  # bytes per second, below which a disk is slow
CLOCK_LIMITS = (5.0, 60.0)  # seconds between clocks: warning above the first, error above the second


def room(host: Host) -> Iterator[Outcome]:
    for name, path, (least, little) in (("home", host.home, HOME), ("shared disk", host.shared, SHARED)):
        try:
            free, whole = host.space(path)
        except OSError as failure:
            yield error(
                f"{name} {path}: {failure.strerror}", "set HOME to another folder, or start in a folder on another disk"
            )
            continue
        text = f"{name} {path}: {size(free)} free of {size(whole)}"
        if free < little:
            kind = error if free < least else warning
            yield kind(text, "free some space, or work elsewhere", **{f"{name} free GB": free / 1e9})
        else:
            yield ok(text, **{f"{name} free GB": free / 1e9})


def temporary(host: Host) -> Iterator[Outcome]:
    """Check that a temporary file can be written. A disk without free inodes also fails."""
    remedy = "free some space there, or `export TMPDIR=FOLDER` on another disk for every process"
    try:
        free = host.space(host.temporary)[0]
        with tempfile.NamedTemporaryFile(prefix="ordsmed-doctor-", dir=host.temporary) as file:
            file.write(bytes(WRITTEN))
            file.flush()
            os.fsync(file.fileno())
    except OSError as failure:
        yield error(f"temporary files {host.temporary}: {failure.strerror}", remedy)
        return
    text, figures = f"temporary files {host.temporary}: {size(free)} free", {"temporary free GB": free / 1e9}
    yield ok(text, **figures) if free >= HOME[0] else warning(text, remedy, **figures)


def quotas(host: Host) -> Iterator[Outcome]:
    answers = [host.ask(["quota", "-w", "-p"]), host.ask(["lfs", "quota", "-q", "-u", host.user, str(host.shared)])]
    if all(answer is None for answer in answers):
        if host.slurm:
            yield ok("there is no `quota` or `lfs` command; the site may have another one")
        return
    rows = [row for answer in answers for row in quota_rows(answer or "")]
    full = [row for row in rows if row[2] >= NEAR]
    for location, counted, share in full:
        kind = error if share >= 1 else warning
        yield kind(f"{location}: {share:.0%} of your quota of {counted} is used", "delete some, or request more")
    if not full:
        yield ok(f"{many(len(rows), 'quota')} checked, none near its limit")


def quota_rows(text: str) -> list[tuple[str, str, float]]:
    """Return (disk, unit, used share of the limit) from the output of `quota` or `lfs quota`."""
    rows = []
    pattern = r"\s*(\S+)\s+(\d+)\*?\s+(\d+)\s+(\d+)\s+\S+\s+(\d+)\*?\s+(\d+)\s+(\d+)"
    for line in text.splitlines():
        if match := re.match(pattern, line):
            numbers = [int(number) for number in match.groups()[1:]]
            for counted, (used, soft, hard) in (("bytes", numbers[:3]), ("files", numbers[3:])):
                if limit := soft or hard:
                    rows.append((match[1], counted, used / limit))
    return rows


def caches(host: Host) -> Iterator[Outcome]:
    """Check that libraries' caches are outside the home folder, which is small on a cluster."""
    if not host.slurm:
        yield ok("in the home folder, which is fine outside of a cluster")
        return
    inside = [name for name in CACHES if host.home in (_cache(host, name), *_cache(host, name).parents)]
    if "XDG_CACHE_HOME" in inside:  # other caches below it move with it
        inside = [name for name in inside if name == "XDG_CACHE_HOME" or name in host.env or name in HOME_DEFAULTS]
    if inside:
        to = " ".join(f"{name}={host.shared / 'caches' / name.split('_')[0].lower()}" for name in inside)
        yield warning(f"{', '.join(inside)} are in {host.home}, which is small on a cluster", f"`export {to}`")
    else:
        yield ok("outside home")


def _cache(host: Host, name: str) -> Path:
    folder = host.env.get(name, "")
    if folder:
        return Path(folder)
    above = Path(host.env.get("XDG_CACHE_HOME", "") or host.home / ".cache")
    if name in HOME_DEFAULTS:
        return host.home
    if name == "TORCHINDUCTOR_CACHE_DIR":
        return Path(tempfile.gettempdir())
    return above


def offline(host: Host) -> Iterator[Outcome]:
    """Check that libraries do not try to download on nodes without internet."""
    apart = host.place is not None and host.place.site.offline
    unset = [name for name in OFFLINE if host.env.get(name, "").upper() not in ("1", "TRUE", "YES", "ON")]
    if apart and unset:
        remedy = f"`export {' '.join(f'{name}=1' for name in unset)}`; fetch on a login node"
        yield warning(f"nodes of {host.place.name if host.place else ''} have no internet", remedy)
    elif len(unset) < len(OFFLINE) and not apart:
        variables = [name for name in OFFLINE if name not in unset]
        yield ok(f"{', '.join(variables)}: nothing is fetched")
    else:
        yield ok("nothing is fetched" if apart else "libraries may fetch")


def disk(host: Host) -> Iterator[Outcome]:
    with _folder(host) as folder:
        block, began = os.urandom(1 << 20), time.perf_counter()
        with (folder / "written").open("wb") as file:
            for _ in range(TEST_BYTES >> 20):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        yield speed_of(host.shared, TEST_BYTES / max(time.perf_counter() - began, 1e-9))


def speed_of(path: Path, speed: float) -> Outcome:
    figures = {"disk MB/s": speed / 1e6}
    if speed < SLOW:
        return warning(f"{path}: {size(speed)} a second", "keep runs on a faster disk (scratch)", **figures)
    return ok(f"{path}: {size(speed)} a second written", **figures)


def locks(host: Host) -> Iterator[Outcome]:
    """Check that file locks exclude a second writer on the shared disk."""
    remedy = "keep runs on a disk with locks (Lustre: mounted with `flock`), or ask the site's support"
    with _folder(host) as folder, (folder / "lock").open("w") as first, (folder / "lock").open("w") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            yield error(f"{host.shared} has none: {failure.strerror}", remedy)
            return
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield ok(f"locks on {host.shared} exclude a second writer")
        else:
            yield error(f"{host.shared} gives the same lock to two writers", remedy)


def renames(host: Host) -> Iterator[Outcome]:
    """Check that a rename on the shared disk replaces a file atomically."""
    with _folder(host) as folder:
        files.write_text(folder / "kept", "old")
        with (folder / "kept").open() as reader:
            files.write_text(folder / "kept", "new")
            after, before = (folder / "kept").read_text(), reader.read()
        (folder / "a").mkdir()
        (folder / "a").rename(folder / "b")
        left = sorted(path.name for path in folder.iterdir())
    if (before, after, left) == ("old", "new", ["b", "kept"]):
        yield ok(f"{host.shared} replaces files atomically")
    else:
        yield error(f"{host.shared} left {before!r}, {after!r}, {' '.join(left)}", "keep runs on another disk")


def clock(host: Host) -> Iterator[Outcome]:
    with _folder(host) as folder:
        before = host.clock()
        (folder / "now").write_text("")
        written, after = (folder / "now").stat().st_mtime, host.clock()
    yield clock_of("the shared disk's", max(before - written, written - after, 0.0))


def clock_of(whose: str, off: float) -> Outcome:
    """Return the outcome for a clock difference in seconds. Builds and caches depend on file times."""
    remedy = "have the clock corrected (`chronyc tracking` shows its source)"
    if off > CLOCK_LIMITS[0]:
        kind = error if off > CLOCK_LIMITS[1] else warning
        return kind(f"{duration(off)} off {whose}", remedy, **{"clock off s": off})
    return ok(f"agrees with {whose}", **{"clock off s": round(off, 3)})


@contextlib.contextmanager
def _folder(host: Host) -> Iterator[Path]:
    with files.survive_disk(host.shared):
        folder = Path(tempfile.mkdtemp(prefix=".ordsmed-doctor-", dir=host.shared))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
