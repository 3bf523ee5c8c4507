"""What Linux says of this machine and of this process: cores, limits of a cgroup, the make of the CPU."""

import contextlib
import os
import platform
import re
import time
from pathlib import Path

ROOT = Path("/")
FEW, EACH = 64, 8  # processes that may be started on any machine, and for each core


def cores() -> int:
    """Cores that this process may keep busy: those it may run on, or fewer where its cgroup has a quota."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def available_cores() -> int:
    """Cores of the machine, or of its container or job: what a process may use that nobody bound to some of them."""
    sets = [*cgroup_limits("", "cpuset.cpus.effective"), *cgroup_limits("cpuset", "cpuset.effective_cpus")]
    return min((len(numbers_in(text)) for text in sets if text), default=os.cpu_count() or 1)


def numbers_in(ranges: str) -> set[int]:
    """Linux's lists: `0-3,8` -> 0, 1, 2, 3, 8."""
    pairs = (part.partition("-") for part in ranges.split(","))
    return {number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)}


def most_processes() -> int:
    """So many processes may be started here and no more."""
    return max(FEW, EACH * cores())


def _quota() -> float | None:
    """The cgroup's share of processor time, in cores."""
    shares = []
    for text in cgroup_limits("", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period) > 0:
            shares.append(int(quota) / int(period))
    pairs = zip(cgroup_limits("cpu", "cpu.cfs_quota_us"), cgroup_limits("cpu", "cpu.cfs_period_us"), strict=False)
    shares += [int(quota) / int(period) for quota, period in pairs if quota.isdigit() and int(quota) > 0 < int(period)]
    return min(shares, default=None)


def cgroup_limits(kind: str, name: str) -> list[str]:
    """A limit that this process's cgroup and those above it have; `kind`: the controller of version 1, "": version 2.

    Inside a container the path in /proc may be the host's: what is mounted then is the container's own.
    """
    path = "/"
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if (kind in controllers.split(",")) if kind else not controllers:
                path = group
    base = ROOT / "sys/fs/cgroup" / kind
    texts, inner = [], base / path.strip("/")
    while inner == base or base in inner.parents:
        with contextlib.suppress(OSError):
            texts.append((inner / name).read_text().strip())
        inner = inner.parent
    return texts


def kernel_version() -> tuple[int, ...]:
    """Linux's version."""
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def processor() -> str:
    """The make of the CPU."""
    return _cpu_field("model name") or platform.processor() or platform.machine()


def cpu_make() -> tuple[str, int]:
    """Who made the CPU, and the number of its family; empty and 0 where the system does not say."""
    family = _cpu_field("cpu family")
    return _cpu_field("vendor_id"), int(family) if family.isdecimal() else 0


def _cpu_field(name: str) -> str:
    """What Linux says of the first core."""
    with contextlib.suppress(OSError):
        for line in (ROOT / "proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return ""


def age() -> float:
    """Return the seconds since this process started; its CPU time if the system does not report its start."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        started = int((ROOT / "proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        since = float((ROOT / "proc/uptime").read_text().split()[0]) - started
        if since >= 0:  # some containers have their own uptime and the host's process times
            return since
    return time.process_time()
