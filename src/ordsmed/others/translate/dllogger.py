"""Log lines of NVIDIA's DLLogger, made from the metrics.jsonl of a finished run.

DLLL {"timestamp": "1606...", "datetime": "...", "elapsedtime": "12.5", "type": "LOG", "step": [10], "data": {...}}

`step` is [step], [epoch, step], [] for a summary, or PARAMETER. A resumed run logs all its steps. Elapsed time is the
time spent in steps, without the time between an interruption and the restart.
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
    step: str | Sequence[int]
    data: Mapping[str, Any]
    seconds: float


class Window(NamedTuple):
    lines: Sequence[Line]

    def mean(self, name: str) -> float:
        return float(sum(line[name] for line in self.lines)) / len(self.lines)

    @property
    def rate(self) -> float:
        """Mean over the steps of rows per second, as the original computes it."""
        return float(sum(line["rows"] / (line["seconds"] or 1e-9) for line in self.lines)) / len(self.lines)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the run to the end of the window."""
        return float(self.lines[-1]["spent"])


def steps(run: Path) -> list[Line]:
    """Return the steps of a run, each with the seconds spent up to its end."""
    text = (run / METRICS).read_text(encoding="utf-8")
    lines = [line for line in map(json.loads, text.splitlines()) if "seconds" in line]
    spent = itertools.accumulate(line["seconds"] for line in lines)
    return [{**line, "spent": seconds} for line, seconds in zip(lines, spent, strict=True)]


def windows(lines: Sequence[Line], count: int) -> list[Window]:
    """Return windows of `count` steps; the last one may have fewer."""
    return [Window(lines[first : first + count]) for first in range(0, len(lines), count)]


def parameters(values: Mapping[str, Any]) -> Iterator[Logged]:
    return (Logged("PARAMETER", {name: value}, 0.0) for name, value in values.items())


def console_line(step: str, data: Mapping[str, Any], stamp: float) -> str:
    texts = [f"{name} : {value} {UNITS.get(name, '')}".rstrip() for name, value in data.items()]
    return f"DLL {datetime.fromtimestamp(stamp)} - {step} {' '.join(texts)}"


def write(path: Path, logged: Sequence[Logged], end: float) -> None:
    """Write the log file, and print the summaries. `end` is the time stamp of the last entry."""
    last, lines = max(entry.seconds for entry in logged), []
    for step, data, seconds in logged:
        stamp = end - last + seconds
        line = {
            "timestamp": str(stamp),
            "datetime": str(datetime.fromtimestamp(stamp)),
            "elapsedtime": str(seconds),
            "type": "LOG",
            "step": step,
            "data": data,
        }
        lines.append(f"DLLL {json.dumps(line)}\n")
        if not step:  # scripts parse summaries in the console output
            print(console_line("", data, stamp), flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, "".join(lines))
