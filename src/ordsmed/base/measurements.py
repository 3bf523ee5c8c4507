"""Measurements: what a bench measured, a table a line in a file that only grows; what estimates are made from.

One line is one measurement, written in one piece. A kill may cut the last one off: whoever reads leaves it out, and
whoever adds takes it away first, so nothing is lost behind it.
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

PLACE = Path("work/bench/measurements.jsonl")  # where nothing else is named


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Steps of one training, or of asking a model, on one machine; numbers are of all its processes together."""

    bench: str
    """the recipe"""
    measure: str
    """training, finetune or predict"""
    software: str
    """ordsmed; what was measured beside it: transformers, or padded, each example alone in a row"""
    family: str
    """the network's kind"""
    task: str
    """the objective's kind, or the task's"""
    optimizer: str
    """its kind; "": none"""
    width: int
    layers: int
    parameters: int
    """of all networks and heads"""
    vocabulary: int
    length: int
    """tokens a row"""
    batch: int
    """rows a step; examples where a task was measured"""
    micro: int
    """rows that a device holds at a time"""
    dropout: float
    precision: str
    """fp32, tf32, bf16 or fp16"""
    compile: bool
    recompute: bool
    layout: str
    """replicate x shard x tensor, as 2x1x1"""
    device: str
    """the name of a device, all alike"""
    kind: str
    """cpu or cuda"""
    processes: int
    threads: int
    """of a process"""
    steps: int
    """in all rounds together"""
    rounds: int
    step_seconds: float
    """the median over rounds"""
    step_seconds_least: float
    step_seconds_most: float
    sequences_per_second: float
    tokens_per_second: float
    """real ones, without padding"""
    flops_per_second: float
    """arithmetic that a step needs, over its time; what is recomputed does not count"""
    peak: float
    """FLOP/s of all devices at large products in this precision, measured; 0: not"""
    share_of_peak: float
    """0: the peak is not known"""
    memory: int
    """bytes at most that a process held: of the GPU, or of the machine"""
    energy: float | None = None
    """joules a step; left out: this machine does not tell"""
    energy_of: str = ""
    """what tells it: RAPL, NVML"""
    kernels: str = ""
    """whose run, and why not others: ours for which parts, or torch's; "": torch's, as anywhere"""
    attention: str = ""
    """which way it takes; "": none, or not known"""
    date: str
    """when, in UTC, as 2026-01-31T12:00:00Z"""
    version: str
    """of ordsmed"""
    torch: str
    """its version"""

    def __post_init__(self) -> None:
        for name in ("step_seconds", "sequences_per_second"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted more than 0")


NAMES = frozenset(field.name for field in dataclasses.fields(Measurement))


def add(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write these behind what stands in a file; processes that do so at once wait for each other."""
    lines = "".join(json.dumps(settings.plain(measurement)) + "\n" for measurement in measurements)
    with files.survive_disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(_whole(file.read()))
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())


def _whole(content: bytes) -> int:
    """Bytes of the lines that end."""
    return content.rfind(b"\n") + 1


def read(path: Path) -> list[Measurement]:
    """All that stand in a file. What a later version of ordsmed says beside them is not looked at."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason, _ = files.refusal(error)
        raise DataError(path, reason, "measurements", "`ordsmed bench RECIPE` writes some") from None
    return [
        _measurement(line, f"{path}:{n}")
        for n, line in enumerate(content[: _whole(content)].split(b"\n")[:-1], 1)
        if line.strip()
    ]


def _measurement(line: bytes, place: str) -> Measurement:
    try:
        table = json.loads(line)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        raise DataError(place, "is no measurement", "a table as `ordsmed bench` writes it", "take that line away")
    known = {name: value for name, value in table.items() if name in NAMES and value is not None}
    return settings.decode(Measurement, known, place)
