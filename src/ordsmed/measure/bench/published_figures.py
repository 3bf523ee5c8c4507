"""Published speeds of other projects, each marked if it was measured on other hardware."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any

from ordsmed.base.measurements import Measurement

HALF = ("bf16", "fp16")


@functools.cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    return list(_tables())


def source(name: str) -> str:
    return str(_tables()[name]["source"])


def comparable(name: str, timing: Measurement) -> list[dict[str, Any]]:
    """Return published figures of the same network, length, number of devices, precision class and batch."""
    mixed, table = timing.precision in HALF, _tables()[name]
    if any(getattr(timing, key) != value for key, value in table["network"].items()):
        return []
    work = (timing.measure, timing.length, timing.processes, mixed)
    keys = ("measure", "length", "devices", "mixed")
    figures = [
        figure
        for figure in table["figure"]
        if tuple(figure[key] for key in keys) == work and figure.get("batch", timing.batch) == timing.batch
    ]
    return [
        {key: figure[key] for key in ("device", "devices", *SHOWN) if key in figure}
        | {"other_hardware": not _same_device(figure["device"], timing.device)}
        for figure in figures
    ]


def _same_device(published: str, measured: str) -> bool:
    """Compare device names: `V100 16 GB` matches Tesla V100-SXM2-16GB; without a memory size, any size matches."""
    chip, _, memory = published.partition(" ")
    words = re.findall(r"[a-z0-9]+", measured.lower())
    return chip.lower() in words and (not memory or memory.replace(" ", "").lower() in words)


SHOWN = ("sequences_per_second", "latency_ms")


def cell_of(figure: dict[str, Any]) -> str:
    latency = f", {' / '.join(map(str, figure['latency_ms']))} ms" if "latency_ms" in figure else ""
    note = " (other hardware)" if figure["other_hardware"] else ""
    return f"{figure['devices']} {figure['device']}: {figure['sequences_per_second']:,}{latency}{note}"
