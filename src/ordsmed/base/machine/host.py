"""Facts that Linux reports about this machine and process: cores, cgroup limits, CPU model, process age."""

import contextlib
import os
import platform
import re
import time
from pathlib import Path

ROOT = Path("/")
MIN_PROCESSES, PROCESSES_PER_CORE = (
    64,
    8,
)  # limit of processes: the larger of MIN_PROCESSES and PROCESSES_PER_CORE times the cores


def cores() -> int:
    """Return the number of cores this process may keep busy: those of its affinity, or fewer by a cgroup quota."""
    allowed = len(os.sched_getaffinity(0))
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def available_cores() -> int:
    """Return the number of cores of the machine, container or job, regardless of this process's affinity."""
    sets = [*cgroup_limits("", "cpuset.cpus.effective"), *cgroup_limits("cpuset", "cpuset.effective_cpus")]
    return min((len(numbers_in(text)) for text in sets if text), default=os.cpu_count() or 1)


def numbers_in(ranges: str) -> set[int]:
    """Parse a list of Linux: `0-3,8` -> 0, 1, 2, 3, 8."""
    pairs = (part.partition("-") for part in ranges.split(","))
    return {number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)}


def max_processes() -> int:
    return max(MIN_PROCESSES, PROCESSES_PER_CORE * cores())


def _quota() -> float | None:
    """Return the CPU quota of the cgroup in cores, or None."""
    shares = []
    for text in cgroup_limits("", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit() and int(period) > 0:
            shares.append(int(quota) / int(period))
    pairs = zip(cgroup_limits("cpu", "cpu.cfs_quota_us"), cgroup_limits("cpu", "cpu.cfs_period_us"), strict=False)
    shares += [int(quota) / int(period) for quota, period in pairs if quota.isdigit() and int(quota) > 0 < int(period)]
    return min(shares, default=None)


def cgroup_limits(kind: str, name: str) -> list[str]:
    """Return the values of a limit in this process's cgroup and its parents.

    `kind` is the controller of cgroup version 1, or "" for version 2. In a container, the path in /proc may be that of
    the host; then only the mounted cgroups, which are the container's, are read.
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
    match = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(match[1]), int(match[2])) if match else (0, 0)


def processor() -> str:
    return _cpu_field("model name") or platform.processor() or platform.machine()


def cpu_make() -> tuple[str, int]:
    """Return the CPU's vendor and family number, or "" and 0 if the system does not report them."""
    family = _cpu_field("cpu family")
    return _cpu_field("vendor_id"), int(family) if family.isdecimal() else 0


def _cpu_field(name: str) -> str:
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
