"""Scaling efficiency of a training on more devices, in the two definitions that papers use.

rows of (devices, rate or seconds) -> speed-up over the first row -> efficiency per device

weak     each device keeps its share of work: efficiency = (rate / devices) / (rate / devices of the first row)
strong   the total work is fixed: speed-up = seconds of the first row / seconds; efficiency = speed-up / device ratio
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ordsmed.base import measurements, settings
from ordsmed.base.errors import DataError
from ordsmed.base.measurements import Measurement
from ordsmed.base.screen import table

# fields that are equal in all measurements of a series; the batch is compared separately
COMPARED_FIELDS = (
    "software measure family task width layers length precision device compile recompute vocabulary dropout"
)


@dataclass(frozen=True)
class Point:
    devices: int
    rate: float = 0.0
    """of all devices together: rows, tokens or FLOP a second"""
    seconds: float = 0.0
    """of the same work; in place of `rate`"""
    reported: float = 0.0
    """the speed-up that its source reports"""

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"devices: found {self.devices}; wanted 1 or more")
        if (self.rate > 0) == (self.seconds > 0):
            raise ValueError(f"rate: found {self.rate:g} and {self.seconds:g} seconds; wanted one of them, above 0")


@dataclass(frozen=True)
class Series:
    name: str
    kind: Literal["weak", "strong"]
    unit: str = "rows/s"
    """of the rates"""
    source: str = ""
    point: tuple[Point, ...] = ()
    """the first is what others are compared with"""

    def __post_init__(self) -> None:
        if len(self.point) < 2:
            raise ValueError(f"point: found {len(self.point)}; wanted two or more")
        if len({point.rate > 0 for point in self.point}) > 1:
            raise ValueError("point: found rates and seconds; wanted one of them in all")
        if self.kind == "weak" and self.point[0].seconds:
            raise ValueError("point: found seconds of weak scaling, whose work grows; wanted rates")

    def speedup(self, point: Point) -> float:
        """Return how many times faster `point` is than the first point."""
        first = self.point[0]
        return point.rate / first.rate if point.rate else first.seconds / point.seconds

    def efficiency(self, point: Point) -> float:
        return self.speedup(point) * self.point[0].devices / point.devices

    def serial(self, point: Point) -> float | None:
        """Return the serial share of the work by Amdahl's law; None for weak scaling or equal numbers of devices."""
        times = point.devices / self.point[0].devices
        if self.kind == "weak" or times == 1:
            return None
        return max(0.0, (times / self.speedup(point) - 1) / (times - 1))


@dataclass(frozen=True)
class ScalingFile:
    series: tuple[Series, ...] = ()

    def __post_init__(self) -> None:
        if not self.series:
            raise ValueError("series: missing; wanted one or more, each a table [[series]]")


def read(path: Path) -> tuple[Series, ...]:
    """Read the series of a TOML file, or find them in a file of measurements that `bench` wrote."""
    if path.suffix != ".jsonl":
        return settings.decode(ScalingFile, settings.read(path), str(path)).series
    series = series_of_measurements(measurements.read(path))
    if not series:
        problem = "has no training that was measured on different numbers of devices"
        raise DataError(path, problem, "one", "`ordsmed bench RECIPE --devices N` measures it")
    return series


def series_of_measurements(all_series: Sequence[Measurement]) -> tuple[Series, ...]:
    """Return the series of measurements that differ only in the number of processes.

    They have the same batch (strong scaling), or the same batch per process (weak scaling).
    """
    alike: dict[str, dict[int, Measurement]] = defaultdict(dict)
    for measurement in all_series:
        for kind, batch in (("strong", float(measurement.batch)), ("weak", measurement.batch / measurement.processes)):
            same = {
                "kind": kind,
                "batch": batch,
                **{name: getattr(measurement, name) for name in COMPARED_FIELDS.split()},
            }
            alike[json.dumps(same)][measurement.processes] = measurement
    series = []
    for key, by_processes in alike.items():
        if len(by_processes) < 2:
            continue
        same = json.loads(key)
        points = [Point(count, rate=by_processes[count].sequences_per_second) for count in sorted(by_processes)]
        of = "{family} {width}x{layers}, {task}, length {length}, on {device}".format(**same)
        series.append(Series(of, same["kind"], point=tuple(points), source="measured"))
    return tuple(series)


def facts(all_series: Sequence[Series]) -> list[dict[str, Any]]:
    return [
        {
            **settings.plain(series),
            "point": [
                {
                    **settings.plain(point),
                    "speedup": series.speedup(point),
                    "efficiency": series.efficiency(point),
                    "serial": series.serial(point),
                }
                for point in series.point
            ],
        }
        for series in all_series
    ]


def lines(all_series: Sequence[Series]) -> list[str]:
    shown = []
    for series in all_series:
        source = f" ({series.source})" if series.source else ""
        shown.append(f"{series.name}: {series.kind} scaling{source}")
        timed = bool(series.point[0].seconds)
        head = ["devices", "seconds" if timed else series.unit, "a device", "speed-up", "reported", "efficiency"]
        rows = []
        for point in series.point:
            value = point.seconds or point.rate
            per_device = "-" if timed else f"{point.rate / point.devices:.4g}"
            cells = [f"{series.speedup(point):.2f}", f"{point.reported:g}" if point.reported else "-"]
            share = series.serial(point)
            serial = "" if share is None else f", {share:.2%} serial"
            rows.append(
                [str(point.devices), f"{value:.6g}", per_device, *cells, f"{series.efficiency(point):.1%}{serial}"]
            )
        shown += table([head, *rows])
    return shown
