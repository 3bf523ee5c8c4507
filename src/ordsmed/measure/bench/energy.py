"""Energy in joules, from the counters of Intel and AMD processors (RAPL) or of NVIDIA GPUs (NVML).

RAPL counts the energy of the processor packages, NVML that of one GPU (Volta and later). For older GPUs, the power is
sampled and integrated over time.
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

OFTEN = 0.05  # seconds between samples of a GPU's power

Joules = Callable[[], float]  # joules since an arbitrary start


@contextlib.contextmanager
def meter(device: torch.device) -> Iterator[tuple[str, Joules]]:
    """Yield the name of the energy source and a function that returns the joules so far; "" and 0 if there is none."""
    with contextlib.ExitStack() as stack:
        if device.type == "cuda":
            yield _gpu_energy(device) or stack.enter_context(_sampled_gpu_energy(device))
        else:
            yield _processor_energy()


def _processor_energy() -> tuple[str, Joules]:
    """Read the counters of the processor packages, which wrap around at their maximum."""
    zones = sorted((ROOT / "sys/class/powercap").glob("intel-rapl:*"))
    packages = [zone for zone in zones if zone.name.count(":") == 1]  # other zones are parts of packages
    try:
        last = [int((zone / "energy_uj").read_text()) for zone in packages]
        full = [int((zone / "max_energy_range_uj").read_text()) for zone in packages]
    except (OSError, ValueError):  # only root can read them on newer kernels
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


def _gpu_energy(device: torch.device) -> tuple[str, Joules] | None:
    import torch

    try:
        nvml, gpu = importlib.import_module("pynvml"), torch.cuda._get_pynvml_handler(device)
        first = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except Exception:  # the library, its Python package or the counter is missing
        return None
    return "NVML", lambda: (nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - first) / 1e3


@contextlib.contextmanager
def _sampled_gpu_energy(device: torch.device) -> Iterator[tuple[str, Joules]]:
    """Sample the power of a GPU in a thread. On Hopper a sample is a mean of up to one second."""
    import torch

    try:
        torch.cuda.power_draw(device)
    except Exception:  # NVML or its Python package is missing, or the GPU does not report it
        yield "", float
        return
    stop, total = Event(), 0.0

    def sample() -> None:
        nonlocal total
        previous = time.perf_counter()
        while not stop.wait(OFTEN):
            watts, moment = torch.cuda.power_draw(device) / 1e3, time.perf_counter()
            total, previous = total + watts * (moment - previous), moment

    thread = Thread(target=sample, name="energy", daemon=True)
    thread.start()
    try:
        yield "NVML", lambda: total
    finally:
        stop.set()
        thread.join()
