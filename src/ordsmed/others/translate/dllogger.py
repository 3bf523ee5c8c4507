"""DLLogger's lines, which dashboards of NVIDIA's codes read: made of the metrics.jsonl of a run that ended.

DLLL {"timestamp": "1606...", "datetime": "...", "elapsedtime": "12.5", "type": "LOG", "step": [10], "data": {...}}

The step is [step], [epoch, step], [] of a summary, or PARAMETER. A run that went on later has all its steps in it, and
seconds are those of the steps: of what lay between two starts nothing is counted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ordsmed.base import files

METRICS = "metrics.jsonl"
UNITS = {"training_sequences_per_second": "sequences/s", "e2e_train_time": "s", "e2e_inference_time": "s"}
Line = dict[str, Any]


class Logged(NamedTuple):
    """What was logged together, and after how many seconds."""

    step: str | Sequence[int]
    data: Mapping[str, Any]
    seconds: float


class Window(NamedTuple):
    """Steps that are logged as one."""

    lines: Sequence[Line]

    def mean(self, name: str) -> float:
        return float(sum(line[name] for line in self.lines)) / len(self.lines)

    @property
    def rate(self) -> float:
        """The mean of each step's own rows a second, as theirs reckon it."""
        return float(sum(line["rows"] / (line["seconds"] or 1e-9) for line in self.lines)) / len(self.lines)

    @property
    def seconds(self) -> float:
        """From the run's beginning to its end."""
        return float(self.lines[-1]["spent"])


def steps(run: Path) -> list[Line]:
    """The steps of a run, each with the seconds spent up to its end."""
    text = (run / METRICS).read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if "seconds" in line]
    spent = itertools.accumulate(line["seconds"] for line in lines)
    return [{**line, "spent": seconds} for line, seconds in zip(lines, spent, strict=True)]


def windows(lines: Sequence[Line], count: int) -> list[Window]:
    """So many steps each; the last one what is left."""
    return [Window(lines[first : first + count]) for first in range(0, len(lines), count)]


def parameters(values: Mapping[str, Any]) -> Iterator[Logged]:
    return (Logged("PARAMETER", {name: value}, 0.0) for name, value in values.items())


def spoken(step: str, data: Mapping[str, Any], stamp: float) -> str:
    """As its second backend has it on the screen."""
    texts = [f"{name} : {value} {UNITS.get(name, '')}".rstrip() for name, value in data.items()]
    return f"DLL {datetime.fromtimestamp(stamp)} - {step} {' '.join(texts)}"


def write(path: Path, logged: Sequence[Logged], ended: float) -> None:
    """The file anew, and sums on the screen; `ended`: the time of the last, from which those of the others follow."""
    last, lines = max(entry.seconds for entry in logged), []
    for step, data, seconds in logged:
        stamp = ended - last + seconds
        line = {"timestamp": str(stamp), "datetime": str(datetime.fromtimestamp(stamp)), "elapsedtime": str(seconds),
                "type": "LOG", "step": step, "data": data}  # fmt: skip
        lines.append(f"DLLL {json.dumps(line)}\n")
        if not step:  # a sum: scripts look for it in what they kept of the screen
            print(spoken("", data, stamp), flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, "".join(lines))
