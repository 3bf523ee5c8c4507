"""Threads of a process: its share of the cores that other processes leave idle, on one socket."""

import contextlib
import os
import re
import time
from collections.abc import Callable

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.say import say

MAX_THREADS = 1024
MIN_SHARE = 4  # a process uses at least a quarter of its share of the cores, even if other processes are busy
LOOK = 0.05  # seconds over which the load of other processes is measured
MAX_BUSY = 0.5  # most cores that others may keep busy during a measurement that is saved
BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "KMP_AFFINITY", "GOMP_CPU_AFFINITY")  # set by users to bind threads to cores


def threads_of(
    requested: int | None = None, *, local_world: int = 1, kept: int | None = None, place: str = "layout.threads"
) -> int:
    """Return the number of threads of this process.

    This is the requested number, else that in the environment, else the number `kept` with which the run was started
    if it fits, else this process's share of the idle cores.
    """
    if requested is not None and not 1 <= requested <= MAX_THREADS:
        raise RecipeError(place, f"found {requested}", f"1 to {MAX_THREADS}")
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
    return share if local_world > 1 or share == 1 else _idle_cores(share)


def _idle_cores(share: int) -> int:
    """Return the number of idle cores in this process's share, at least a quarter of the share."""
    busy_cores = measure_others()
    time.sleep(LOOK)
    busy = busy_cores()
    left = max(share // MIN_SHARE, 1, min(share, round(share - busy)))
    if left < share:
        say(f"threads: {left} of {share}, because {busy:.1f} cores are busy; --threads or `layout.threads` changes it")
    return left


def measure_others() -> Callable[[], float]:
    """Return a function that returns how many of this process's cores other processes kept busy since this call."""
    before, began, worked = _ticks(), time.perf_counter(), time.process_time()

    def busy_cores() -> float:
        after = _ticks()
        if before is None or after is None or after[1] <= before[1]:
            return 0.0
        busy = (after[0] - before[0]) / (after[1] - before[1]) * len(os.sched_getaffinity(0))
        return max(0.0, busy - (time.process_time() - worked) / (time.perf_counter() - began))

    return busy_cores


def idle_check() -> Callable[[], bool]:
    """Return a function that returns whether other processes left this process's cores idle since this call."""
    busy = measure_others()
    return lambda: busy() < MAX_BUSY


def _ticks() -> tuple[float, float] | None:
    """Return the busy and the total clock ticks of the cores this process may use, or None."""
    allowed, worked, whole = os.sched_getaffinity(0), 0.0, 0.0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (host.ROOT / "proc/stat").read_text().splitlines():
            if (core := re.match(r"cpu(\d+) ", line)) and int(core[1]) in allowed:
                ticks = [float(n) for n in line.split()[1:9]]
                whole, worked = whole + sum(ticks), worked + sum(ticks) - ticks[3] - ticks[4]  # idle, waiting for I/O
        return (worked, whole) if whole else None
    return None


def stay_on_socket(local: int, local_world: int, threads: int) -> None:
    """Bind this process to the cores of one socket, so that its memory is local.

    Do nothing if sockets differ in cores or processes, or if the user has bound threads to cores.
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
    """Return the cores this process may use, by socket; a single set if the system does not report sockets."""
    sockets: dict[str, set[int]] = {}
    for core in sorted(os.sched_getaffinity(0)):
        name = ""
        with contextlib.suppress(OSError):
            name = (host.ROOT / f"sys/devices/system/cpu/cpu{core}/topology/physical_package_id").read_text().strip()
        sockets.setdefault(name, set()).add(core)
    return list(sockets.values())
