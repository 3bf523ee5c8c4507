"""Memory of a process: how much it may hold, how much it held, whether it ran out; and glibc's large pages."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import re
import resource
import sys
from typing import TYPE_CHECKING

from ordsmed.base.errors import RecipeError
from ordsmed.base.machine import host
from ordsmed.base.say import size

if TYPE_CHECKING:
    import torch

FULL = (  # words of errors that have no class of their own: torch's on a CPU, a GPU's outside of torch's allocator
    r"can't allocate memory|\b(CUDA|HIP) ((driver )?error|failure).*out of memory"
    r"|Triton Error \[(CUDA|HIP)\].*out of memory"
    r"|(CUBLAS|CUDNN|HIPBLAS)_STATUS_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed"
)


def memory_limit() -> int | None:
    """Bytes this process may come to hold: the machine's, or fewer where its cgroup or a ulimit says so."""
    soft = [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limits = [value for value in soft if value != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError, IndexError):
        table = dict(line.split(":") for line in (host.ROOT / "proc/meminfo").read_text().splitlines() if ":" in line)
        limits.append(int(table["MemTotal"].split()[0]) * 1024)
    for kind, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        limits += [int(text) for text in host.cgroup_limits(kind, name) if text.isdigit()]
    return min(limits, default=None)


def reset_peak_memory(device: torch.device) -> None:
    """Let `peak_memory` count from now on."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # a container may forbid it: then all that this process ever had counts
        (host.ROOT / "proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes that tensors took on a GPU at most; on a CPU, what the process took."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (host.ROOT / "proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def afford(place: object, count: int, size_of_one: float) -> None:
    """Refuse so many things of so many bytes where memory cannot hold them."""
    has = memory_limit()
    if has is not None and count * size_of_one >= has:
        problem = f"found {count:,}, which take {size(count * size_of_one)} of memory"
        raise RecipeError(place, problem, f"less than the {size(has)} there are: {int(has / size_of_one):,} at most")


def is_out_of_memory(error: BaseException) -> bool:
    """Did the memory of a GPU or of the machine run out?"""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search(FULL, str(error), re.IGNORECASE))


@functools.cache
def keep_memory() -> None:
    """Let glibc keep what it once had, on pages of 2 MB: a step of a CPU that finds its tensors on fresh pages takes 8
    to 17 per cent longer, one that finds them on small pages 2 to 6 (docs/log.md)."""
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, top_pad, mmap_max, never = -1, -2, -4, -1
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:  # another C library: nothing to tune
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, never)
    libc.mallopt(top_pad, 64 << 20)
    if room := _free_addresses():
        # grow the heap once, ask for large pages there, and give it back to malloc, which hands it out from now on
        address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = address, [size], [address]
        libc.madvise.argtypes = [address, size, number]
        start = libc.malloc(room)
        if start:
            libc.madvise(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, room - mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
            libc.free(start)


def _free_addresses() -> int:
    """Bytes of addresses that cost nothing before they are written to; 0 where they are counted.

    Linux before 5.2 counts them against what is free whenever this process is copied, and then refuses to start others.
    """
    strict = host.kernel_version() < (5, 2)
    with contextlib.suppress(OSError):
        strict = strict or (host.ROOT / "proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    limited = any(
        resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )
    return 0 if strict or limited else (memory_limit() or 0) // 2
