"""The speed of matrix products on a device, measured in a tenth of a second and cached per machine."""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.machine import host
from ordsmed.base.machine.devices import name_of
from ordsmed.base.machine.threads import MAX_BUSY, measure_others

if TYPE_CHECKING:
    import torch

PATIENCE = 0.1  # seconds of a measurement
SHORT = 0.01  # seconds of a product that is long enough to measure
WIDE = ("AuthenticAMD", 26)  # from Zen 5 on, a CPU computes 512 bits per step, but MKL uses 256 there
LEAST, LARGEST = 128, {"cpu": 4096, "cuda": 8192}  # sides of the matrices
SLOWER = 1.5  # slowdown of products in 16 bits above which a note is printed
_known: dict[str, float] = {}  # speeds measured or read by this process


def measured_peak(device: torch.device, precision: str) -> float:
    """Return the best FLOP/s of square matrix products within a tenth of a second, on this device and precision.

    The value is cached, unless other processes were busy during the measurement.
    """
    key = key_of(device, precision)
    if not (known := cached_figure(key)):
        known, alone = _measure(device, precision)
        if alone:
            cache_figure(key, known)
    return known


def cached_figure(key: str) -> float:
    if known := _known.get(key) or _read_cache().get(key, 0.0):
        _known[key] = known
    return known


def cache_figure(key: str, figure: float) -> None:
    """Cache a measured speed. If the cache cannot be written, it is measured again next time."""
    _known[key] = figure
    with contextlib.suppress(OSError, RuntimeError, OrdsmedError):
        path = _cache()
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {**_read_cache(), key: figure})


def slowdown_in(precision: str, device: torch.device) -> float:
    """Return how many times slower products in 16 bits are than in fp32 on a CPU; 0 if unknown or at most SLOWER."""
    if device.type != "cpu" or precision not in ("bf16", "fp16"):
        return 0.0
    times = measured_peak(device, "fp32") / measured_peak(device, precision)
    sure = all(key_of(device, p) in _known for p in ("fp32", precision))
    return times if sure and times > SLOWER else 0.0


def key_of(device: torch.device, measured: str) -> str:
    """Return the cache key of a speed: machine, device, threads, and the precision or other quantity `measured`."""
    import torch

    name = name_of(device) if device.type == "cuda" else f"{name_of(device)}, {torch.get_num_threads()}"
    library = " by oneDNN" if measured == "fp32" and device.type == "cpu" and wider_by_onednn() else ""
    return f"{platform.node()} | {name} | {measured}{library} | torch {torch.__version__}"


def _measure(device: torch.device, precision: str) -> tuple[float, bool]:
    """Return the best speed, and whether the machine was idle apart from this process."""
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    chance = torch.Generator(device.type).manual_seed(0)  # leaves the global generator unchanged
    tile = torch.randn(LEAST, LEAST, generator=chance, device=device).to(dtype)
    cuda = device.type == "cuda"
    clock = time.perf_counter if cuda else time.thread_time  # excludes time in which other processes have the core
    wider = not cuda and dtype == torch.float32 and wider_by_onednn()

    def spent(size: int, repeats: int) -> float:
        a, b = tile.repeat(size // LEAST, size // LEAST), tile.repeat(size // LEAST, size // LEAST)
        if cuda:
            torch.cuda.synchronize()
        start = clock()
        for _ in range(repeats):
            torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "") if wider else a @ b
        if cuda:
            torch.cuda.synchronize()
        return max(clock() - start, 1e-9) / repeats

    size, repeats = LEAST, 20 if cuda else 1
    spent(size, 1)  # warms up threads and libraries
    busy_cores, began = measure_others(), clock()
    seconds = spent(size, repeats)
    best = 2 * size**3 / seconds
    while clock() - began < PATIENCE:
        left = PATIENCE - (clock() - began)
        if seconds < SHORT and size < LARGEST.get(device.type, 2048) and 10 * seconds * repeats < left:
            size *= 2
        seconds = spent(size, repeats)
        best = max(best, 2 * size**3 / seconds)
    return best, busy_cores() < MAX_BUSY


@functools.cache
def wider_by_onednn() -> bool:
    """Return whether oneDNN's fp32 products are faster than MKL's on this CPU, and torch has both."""
    import torch

    maker, family = host.cpu_make()
    if maker != WIDE[0] or family < WIDE[1] or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _cache() -> Path:
    return files.user_cache() / "speed.json"


def _read_cache() -> dict[str, float]:
    """Return the cached speeds; none if the cache cannot be read."""
    kept: object = {}
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # RuntimeError: no home
        kept = json.loads(_cache().read_text(encoding="utf-8"))
    speeds = kept.items() if isinstance(kept, dict) else ()
    return {str(k): float(v) for k, v in speeds if isinstance(v, int | float) and 0 < v < float("inf")}
