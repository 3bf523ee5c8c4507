"""Memory of this process: limit, peak, detection of out-of-memory errors, and large pages of glibc."""

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

OUT_OF_MEMORY = (  # messages of errors without a class: torch's on a CPU, and a GPU's outside of torch's allocator
    r"can't allocate memory|\b(CUDA|HIP) ((driver )?error|failure).*out of memory"
    r"|Triton Error \[(CUDA|HIP)\].*out of memory"
    r"|(CUBLAS|CUDNN|HIPBLAS)_STATUS_ALLOC_FAILED|rocblas_status_memory_error|miopenStatusAllocFailed"
)


def memory_limit() -> int | None:
    """Return how many bytes this process may use: the machine's memory, or a limit of its cgroup or ulimit."""
    soft = [resource.getrlimit(limit)[0] for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limits = [value for value in soft if value != resource.RLIM_INFINITY]
    with contextlib.suppress(OSError, ValueError, IndexError):
        table = dict(line.split(":") for line in (host.ROOT / "proc/meminfo").read_text().splitlines() if ":" in line)
        limits.append(int(table["MemTotal"].split()[0]) * 1024)
    for kind, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        limits += [int(text) for text in host.cgroup_limits(kind, name) if text.isdigit()]
    return min(limits, default=None)


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak that `peak_memory` returns."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):  # a container may forbid it; then the peak since the start counts
        (host.ROOT / "proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes of tensors on a GPU, or of this process on a CPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (host.ROOT / "proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def check_fits_memory(location: object, count: int, size_of_one: float) -> None:
    """Raise an error if `count` items of `size_of_one` bytes do not fit in memory."""
    limit = memory_limit()
    if limit is not None and count * size_of_one >= limit:
        problem = f"found {count:,}, which need {size(count * size_of_one)} of memory"
        raise RecipeError(location, problem, f"at most {int(limit / size_of_one):,}, which fit in {size(limit)}")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the memory of a GPU or of the machine ran out."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(re.search(OUT_OF_MEMORY, str(error), re.IGNORECASE))


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep freed memory for reuse, on pages of 2 MB.

    A training step on a CPU takes 8 to 17 per cent longer if its tensors get new pages, and 2 to 6 per cent longer with
    small pages (docs/log.md).
    """
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
    if reserved := _free_addresses():
        # grow the heap once, request large pages for it, and free it, so that malloc reuses it from now on
        address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = address, [size], [address]
        libc.madvise.argtypes = [address, size, number]
        start = libc.malloc(reserved)
        if start:
            libc.madvise(-(-start // mmap.PAGESIZE) * mmap.PAGESIZE, reserved - mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
            libc.free(start)


def _free_addresses() -> int:
    """Return the bytes of address space that can be reserved without using memory; 0 if reservations count as used.

    Linux before 5.2 counts them when a process forks, and may then refuse to fork.
    """
    strict = host.kernel_version() < (5, 2)
    with contextlib.suppress(OSError):
        strict = strict or (host.ROOT / "proc/sys/vm/overcommit_memory").read_text().strip() == "2"
    limited = any(
        resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    )
    return 0 if strict or limited else (memory_limit() or 0) // 2
