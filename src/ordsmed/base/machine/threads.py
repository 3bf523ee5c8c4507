"""Threads of a process: its share of the cores that others leave idle, on one socket."""

import contextlib
import os
import re
import time
from collections.abc import Callable

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.say import say

MOST_THREADS = 1024
LEAST_SHARE = 4  # of the cores a process takes one in so many, however busy the others are
LOOK = 0.05  # seconds over which other processes are watched
ALONE = 0.5  # cores that other processes may keep busy during a measurement that is kept
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")  # by which users bind threads to cores


def threads_of(
    requested: int | None = None, *, local_world: int = 1, kept: int | None = None, place: str = "layout.threads"
) -> int:
    """Threads of this process: the requested ones, by the environment too; else those that a run was made with, where
    they fit; else its share of the cores that others leave idle."""
    if requested is not None and not 1 <= requested <= MOST_THREADS:
        raise RecipeError(place, f"found {requested}", f"1 to {MOST_THREADS}")
    if requested:
        return requested
    share = max(1, host.cores() // local_world)
    counts = []
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if text := os.environ.get(name, "").strip():
            first = text.partition(",")[0].strip()  # OpenMP: a number for each level of nesting
            if not (first.isascii() and first.isdigit() and int(first) >= 1):
                raise RecipeError(name, f"found {text}", "1 or more", "unset it to leave the choice to ordsmed")
            counts.append(int(first))
    wanted = min(counts, default=None)
    if wanted:
        return min(wanted, share)
    if kept and kept <= share:
        return kept
    return share if local_world > 1 or share == 1 else _left_by_others(share)


def _left_by_others(share: int) -> int:
    """Of the cores this process may use, those that nobody else keeps busy; a quarter of them at least."""
    busy_cores = watch_others()
    time.sleep(LOOK)
    busy = busy_cores()
    left = max(share // LEAST_SHARE, 1, min(share, round(share - busy)))
    if left < share:
        say(f"threads: {left} of {share}, as others keep {busy:.1f} cores busy; `layout.threads` or --threads decide")
    return left


def watch_others() -> Callable[[], float]:
    """Watch the cores this process may use; the result says how many of them other processes kept busy since."""
    before, began, worked = _ticks(), time.perf_counter(), time.process_time()

    def busy_cores() -> float:
        after = _ticks()
        if before is None or after is None or after[1] <= before[1]:
            return 0.0
        busy = (after[0] - before[0]) / (after[1] - before[1]) * len(os.sched_getaffinity(0))
        return max(0.0, busy - (time.process_time() - worked) / (time.perf_counter() - began))

    return busy_cores


def watch_alone() -> Callable[[], bool]:
    """Watch the cores this process may use; the result says whether it had them for itself since."""
    busy = watch_others()
    return lambda: busy() < ALONE


def _ticks() -> tuple[float, float] | None:
    """Ticks in which the cores this process may use worked, and all their ticks."""
    allowed, worked, whole = os.sched_getaffinity(0), 0.0, 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (host.ROOT / "proc/stat").read_text().splitlines():
            if (core := re.match(r"cpu(\d+) ", line)) and int(core[1]) in allowed:
                ticks = [float(n) for n in line.split()[1:9]]
                whole, worked = whole + sum(ticks), worked + sum(ticks) - ticks[3] - ticks[4]  # idle, waiting for disks
        return (worked, whole) if whole else None
    return None


def stay_on_socket(local: int, local_world: int, threads: int) -> None:
    """Keep this process, with so many threads, on one of the machine's sockets, where its memory will lie.

    Only where sockets are equal, each takes equally many processes, and nobody else has bound threads to cores.
    """
    if local_world == 1 or any(name in os.environ for name in BINDING):
        return
    sockets = _sockets()
    share, left = divmod(local_world, len(sockets))
    if len(sockets) == 1 or left or len({len(socket) for socket in sockets}) > 1 or share * threads > len(sockets[0]):
        return
    with contextlib.suppress(OSError):  # a container may forbid it
        os.sched_setaffinity(0, sockets[local // share])
        say(f"threads: each process stays on one of {len(sockets)} sockets")


def _sockets() -> list[set[int]]:
    """The cores this process may use, by their socket; one where the machine does not say."""
    sockets: dict[str, set[int]] = {}
    for core in sorted(os.sched_getaffinity(0)):
        name = ""
        with contextlib.suppress(OSError):
            name = (host.ROOT / f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id").read_text().strip()
        sockets.setdefault(name, set()).add(core)
    return list(sockets.values())
