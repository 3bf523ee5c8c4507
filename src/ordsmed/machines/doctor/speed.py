"""Checks of the device's speed: matrix products, and memory bandwidth."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ordsmed.base.launch.gpus import known
from ordsmed.base.machine import speed
from ordsmed.base.say import size
from ordsmed.machines.doctor.host import Host
from ordsmed.machines.doctor.outcome import Outcome, ok, warning

COPIED = {"cpu": 64 << 20, "cuda": 1 << 30}  # bytes, larger than any cache
TIMES = 5
LEAST_SHARE = 0.3  # of the peak that the maker states; short measurements of large products reach two thirds


def products(host: Host) -> Iterator[Outcome]:
    if not host.torch.version:
        return
    import torch

    device = torch.device(host.device)
    usual = known(host.torch.cards[0].name) if device.type == "cuda" and host.torch.cards else None
    precision = usual.precision if usual else "fp32"
    yield products_of(precision, speed.measured_peak(device, precision), usual.teraflops if usual else 0.0)


def products_of(precision: str, peak: float, stated: float) -> Outcome:
    """Return the outcome for a measured peak in FLOP/s. Warn if it is far below the stated peak in TFLOP/s."""
    figures = {f"{precision} TFLOP/s": peak / 1e12}
    text = f"{peak / 1e12:.3g} TFLOP/s in {precision}" + (
        f", {peak / 1e12 / stated:.0%} of its vendor's figure" if stated else ""
    )
    if stated and peak < LEAST_SHARE * stated * 1e12:
        return warning(text, "check what else uses it, and its clocks and temperature", **figures)
    return ok(text, **figures)


def memory(host: Host) -> Iterator[Outcome]:
    if not host.torch.version:
        return
    speed = copied(host.device)
    yield ok(f"{size(speed)} a second read and written", **{"memory GB/s": speed / 1e9})


def copied(device: str) -> float:
    """Return the bytes per second, read and written, of the fastest of a few copies."""
    import torch

    chosen = torch.device(device)
    source = torch.ones(COPIED[chosen.type], dtype=torch.uint8, device=chosen)
    target, best = torch.zeros_like(source), 0.0
    for _ in range(TIMES):
        if chosen.type == "cuda":
            torch.cuda.synchronize(chosen)
        began = time.perf_counter()
        target.copy_(source)
        if chosen.type == "cuda":
            torch.cuda.synchronize(chosen)
        best = max(best, 2 * source.numel() / max(time.perf_counter() - began, 1e-9))
    return best
