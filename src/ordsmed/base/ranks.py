"""Ranks: which process of how many this is, its device, its threads, and what a process needs before it computes."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ordsmed.base.errors import RecipeError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Ranks:
    """One process among `world`."""

    device: torch.device
    rank: int = 0
    world: int = 1
    threads: int = 1

    @property
    def first(self) -> bool:
        """The one that writes and speaks."""
        return self.rank == 0


def prepare(device: str = "auto", threads: int | None = None) -> Ranks:
    """Choose the device and set this process up for it."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise RecipeError("layout.device", f"found {device}, but torch sees no GPU", "", "name `cpu` or `auto`")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        raise RecipeError("WORLD_SIZE", f"found {world}", "1: this version trains in one process")
    torch.set_num_threads(threads or len(os.sched_getaffinity(0)))
    torch.set_flush_denormal(True)  # subnormal gradients make a CPU ten times slower
    if device == "cpu":
        keep_memory()
    return Ranks(torch.device(device), threads=torch.get_num_threads())


def keep_memory() -> None:
    """Let glibc keep large blocks: fresh pages for every tensor cost a CPU step 8 to 17 percent (docs/log.md)."""
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:  # another C library: nothing to tune
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, 2**31 - 1)
    libc.mallopt(top_pad, 64 << 20)


def measured_peak(device: torch.device, precision: str) -> float:
    """FLOP/s of a 2048-cubed product on this device and in this precision: the best of a few."""
    import time

    import torch

    size, dtype = 2048, {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    a, b = torch.randn(size, size, device=device, dtype=dtype), torch.randn(size, size, device=device, dtype=dtype)
    repeats, best = (20, 10) if device.type == "cuda" else (1, 5)
    seconds = []
    for _ in range(best + 1):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / repeats)
    return 2 * size**3 / min(seconds[1:])
