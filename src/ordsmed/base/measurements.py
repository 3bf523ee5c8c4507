"""Measurements of benchmarks, one JSON line each in a file that is only appended to. Estimates are based on them.

A truncated last line (of a killed process) is ignored by readers and removed by the next writer.
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import files, settings
from ordsmed.base.errors import DataError

DEFAULT_PATH = Path("work/bench/measurements.jsonl")  # default path


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The speed of a training or of predictions on one machine. Numbers are totals of all processes."""

    bench: str
    """the recipe"""
    measure: str
    """training, finetune or predict"""
    software: str
    """ordsmed, or a comparison: transformers, or padded (one example per row)"""
    family: str
    """kind of the network"""
    task: str
    """kind of the objective or task"""
    optimizer: str
    """kind; "": none"""
    width: int
    layers: int
    parameters: int
    """of all networks and heads"""
    vocabulary: int
    length: int
    """tokens per row"""
    batch: int
    """rows per step; for a task, examples"""
    micro: int
    """rows of a micro-batch"""
    dropout: float
    precision: str
    """fp32, tf32, bf16 or fp16"""
    compile: bool
    recompute: bool
    layout: str
    """replicate x shard x tensor, such as 2x1x1"""
    device: str
    """name of the devices, which are equal"""
    kind: str
    """cpu or cuda"""
    processes: int
    threads: int
    """per process"""
    steps: int
    """in all rounds"""
    rounds: int
    step_seconds: float
    """median of rounds"""
    step_seconds_least: float
    step_seconds_most: float
    sequences_per_second: float
    tokens_per_second: float
    """without padding"""
    flops_per_second: float
    """operations that a step needs, without recomputation, per second"""
    peak: float
    """measured FLOP/s of all devices for large products in this precision; 0: not measured"""
    share_of_peak: float
    """0: the peak is unknown"""
    memory: int
    """peak bytes of a process: on the GPU, or of the machine"""
    energy: float | None = None
    """joules per step; None: not reported by this machine"""
    energy_of: str = ""
    """source of the energy: RAPL, NVML"""
    kernels: str = ""
    """parts that use ordsmed's kernels, and why others do not; "": torch's kernels"""
    attention: str = ""
    """implementation of attention; "": none, or unknown"""
    date: str
    """in UTC, such as 2026-01-31T12:00:00Z"""
    version: str
    """of ordsmed"""
    torch: str
    """version of torch"""

    def __post_init__(self) -> None:
        for name in ("step_seconds", "sequences_per_second"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted more than 0")


NAMES = frozenset(field.name for field in dataclasses.fields(Measurement))


def add(path: Path, measurements: Sequence[Measurement]) -> None:
    """Append measurements to a file, under a lock."""
    lines = "".join(json.dumps(settings.plain(measurement)) + "\n" for measurement in measurements)
    with files.survive_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(_complete_length(file.read()))
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def _complete_length(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def read(path: Path) -> list[Measurement]:
    """Return all measurements of a file. Unknown keys of later versions of ordsmed are ignored."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason, _ = files.describe_os_error(error)
        raise DataError(path, reason, "measurements", "`ordsmed bench RECIPE` writes some") from None
    return [
        _measurement(line, f"{path}:{n}")
        for n, line in enumerate(content[: _complete_length(content)].split(b"\n")[:-1], 1)
        if line.strip()
    ]


def _measurement(line: bytes, location: str) -> Measurement:
    try:
        table = json.loads(line)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise DataError(location, "is not a measurement", "a table written by `ordsmed bench`", "remove that line")
    known = {name: value for name, value in table.items() if name in NAMES and value is not None}
    return settings.decode(Measurement, known, location)
