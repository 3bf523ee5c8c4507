"""Energy: joules that a machine tells of itself, by Intel's and AMD's counters (RAPL) or by NVIDIA's (NVML).

RAPL counts what the processors' packages took, NVML what one GPU took (Volta and later). An older one tells what it
draws, which is summed up while time goes.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import TYPE_CHECKING

from ordsmed.base.machine.host import ROOT

if TYPE_CHECKING:
    import torch

OFTEN = 0.05  # seconds between two looks at what a GPU draws

Joules = Callable[[], float]  # since some moment


@contextlib.contextmanager
def meter(device: torch.device) -> Iterator[tuple[str, Joules]]:
    """What tells the energy of a device, and the joules so far; "" and zeros where nothing does."""
    with contextlib.ExitStack() as at_the_end:
        if device.type == "cuda":
            yield _counted_by(device) or at_the_end.enter_context(_drawn(device))
        else:
            yield _counted()


def _counted() -> tuple[str, Joules]:
    """The packages' counters, which begin anew when they are full."""
    zones = sorted((ROOT / "sys/class/powercap").glob("intel-rapl:*"))
    packages = [zone for zone in zones if zone.name.count(":") == 1]  # others are parts of these
    try:
        last = [int((zone / "energy_uj").read_text()) for zone in packages]
        full = [int((zone / "max_energy_range_uj").read_text()) for zone in packages]
    except (OSError, ValueError):  # newer kernels let only root read them
        return "", float
    if not packages:
        return "", float
    total = 0

    def joules() -> float:
        nonlocal total
        for number, zone in enumerate(packages):
            count = int((zone / "energy_uj").read_text())
            total += count - last[number] + (full[number] if count < last[number] else 0)
            last[number] = count
        return total / 1e6

    return "RAPL", joules


def _counted_by(device: torch.device) -> tuple[str, Joules] | None:
    """A GPU's own counter, in millijoules; None: it has none, or nothing reads it."""
    import torch

    try:
        nvml, gpu = importlib.import_module("pynvml"), torch.cuda._get_pynvml_handler(device)
        first = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except Exception:  # the library, its Python package or the counter lacks
        return None
    return "NVML", lambda: (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - first) / 1e3


@contextlib.contextmanager
def _drawn(device: torch.device) -> Iterator[tuple[str, Joules]]:
    """What a GPU draws, looked at again and again beside the work: a mean of up to a second before (Hopper's)."""
    import torch

    try:
        torch.cuda.power_draw(device)
    except Exception:  # NVML's library, or its Python package, lacks; or this GPU does not tell
        yield "", float
        return
    over, total = Event(), 0.0

    def look() -> None:
        nonlocal total
        before = time.perf_counter()
        while not over.wait(OFTEN):
            watts, moment = torch.cuda.power_draw(device) / 1e3, time.perf_counter()
            total, before = total + watts * (moment - before), moment

    thread = Thread(target=look, name="energy", daemon=True)
    thread.start()
    try:
        yield "NVML", lambda: total
    finally:
        over.set()
        thread.join()
