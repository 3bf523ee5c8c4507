"""Learning curve of a run: its metrics file, read as a stream of any length into a bounded number of points.

a file in blocks -> lines -> ranges of lines, each with its lowest, mean and highest loss -> points of a curve
                             (neighboring ranges are merged whenever there are too many)
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ordsmed.tell.report import values

MOST = 600  # smallest number of points of a long curve; up to twice as many are kept
BLOCK = 1 << 21  # bytes per read
LONGEST = 1 << 20  # bytes; a longer line is not a line of metrics
LAST = 10  # steps of the reported mean loss
ENDLESS = 1e30  # larger losses count as infinite
COLUMNS = ("step", "low", "mean", "high", "tokens", "hours", "flops")

Numbers = NDArray[np.float64]


class MetricsLine(msgspec.Struct, gc=False):
    """Fields that are read of a line; a line with `validation` is not a step."""

    step: float
    phase: int = 1
    loss: float | None = None
    tokens: float = 0.0
    seconds: float = 0.0
    validation: float | msgspec.UnsetType | None = msgspec.UNSET


DECODER = msgspec.json.Decoder(MetricsLine)


@dataclass(frozen=True)
class Known:
    """Facts that metrics do not hold: FLOPs per step of each phase, and pairs of first step and processes."""

    flops: Mapping[int, float]
    processes: Sequence[tuple[int, int]] = ((0, 1),)


class LearningCurve:
    """Reads a metrics file in blocks of any size and computes its curve at any time."""

    def __init__(self, known: Known, most: int = MOST) -> None:
        self.known, self.most = known, max(2, most)
        self.rest = b""
        self.read = 0  # number of lines read, complete or not
        self.steps, self.tokens, self.seconds, self.device_seconds, self.flops = 0, 0.0, 0.0, 0.0, 0.0
        self.phases: dict[int, float] = {}  # phase -> its first step
        self.first: list[float] = []
        self.last: list[float] = []
        self.latest = np.empty((0, 2))  # step and loss of the last LAST steps
        self.lowest: tuple[float, float] | None = None
        self.no_numbers, self.first_no_number = 0, 0.0
        self.damaged: list[int] = []  # numbers of the first damaged lines
        self.damaged_count = 0
        self.validations: list[dict[str, Any]] = []
        self.best_validation: dict[str, Any] | None = None
        self.stretches = np.empty((0, 9))  # step, low, sum, high, tokens, seconds, flops, numbers, lines
        self.width = 1
        self.pending = np.empty((0, 5))  # lines of an incomplete range: step, loss, tokens, seconds, flops

    def feed(self, block: bytes) -> None:
        complete, end, remainder = block.rpartition(b"\n")
        if not end:
            self.rest += block
        else:
            complete, self.rest = self.rest + complete, remainder
            self._lines(complete)
        if len(self.rest) > LONGEST:
            self._damage()
            self.rest = b""

    def end(self) -> str:
        """Finish the file and return what is wrong with its last line, if anything."""
        last_line, self.rest = self.rest, b""
        if not last_line.strip():
            return ""
        damaged_before = self.damaged_count
        self._lines(last_line)
        if self.damaged_count == damaged_before:
            return ""
        self.damaged_count -= 1
        self.damaged = [number for number in self.damaged if number != self.read]
        return f"line {self.read:,}, the last, is incomplete; it is left out"

    def _damage(self) -> None:
        self.read += 1
        self.damaged_count += 1
        if len(self.damaged) < 3:
            self.damaged.append(self.read)

    def _lines(self, text: bytes) -> None:
        has_validations = b'"validation"' in text
        try:
            lines = DECODER.decode_lines(text)
            rows = _columns(_steps(lines) if has_validations else lines)
            self.read += len(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError):
            rows = _columns(_steps(list(self._one_by_one(text))))
        if has_validations:
            self._add_validations(text)
        if len(rows):
            self._add(rows)

    def _one_by_one(self, text: bytes) -> Iterator[MetricsLine]:
        """Yield the lines of a text with invalid JSON: accept Python's NaN and skip other damaged lines."""
        for piece in text.split(b"\n"):
            if not piece.strip():
                continue
            try:
                try:
                    line = DECODER.decode(piece)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    line = msgspec.convert(json.loads(piece), MetricsLine)
                if None in map(values.number, (line.step, line.phase, line.tokens, line.seconds)):
                    raise ValueError
            except (ValueError, msgspec.ValidationError, RecursionError):
                self._damage()
                continue
            self.read += 1
            yield line

    def _add_validations(self, text: bytes) -> None:
        """Add complete validation lines, because each task has its own scores."""
        for piece in text.split(b"\n"):
            if b'"validation"' not in piece:
                continue
            try:
                line = json.loads(piece)
                step, value = values.number(line["step"]), _number(line["validation"])
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if step is None:
                continue
            validation = {**line, "step": step, "validation": value}
            self.validations.append(validation)
            if math.isfinite(value) and (self.best_validation is None or value < self.best_validation["validation"]):
                self.best_validation = validation
        while len(self.validations) > 2 * self.most:
            self.validations = [*self.validations[:-1:2], self.validations[-1]]

    def _add(self, rows: Numbers) -> None:
        flops = self._flops(rows[:, 4])
        self._count(rows)
        cumulated = np.cumsum(np.column_stack([rows[:, 2], rows[:, 3], flops]), axis=0)
        cumulated += (self.tokens, self.seconds, self.flops)
        self.tokens, self.seconds, self.flops = map(float, cumulated[-1])
        self.last = [*rows[-1, :2].tolist(), *cumulated[-1].tolist()]
        self.first = self.first or [*rows[0, :2].tolist(), *cumulated[0].tolist()]
        self.pending = np.concatenate([self.pending, np.column_stack([rows[:, :2], cumulated])])
        while complete := min(len(self.pending) // self.width, 2 * self.most - len(self.stretches)):
            self.stretches = np.concatenate([self.stretches, _stretches(self.pending, self.width, complete)])
            self.pending = self.pending[complete * self.width :]
            if len(self.stretches) == 2 * self.most:
                self.stretches = _paired(self.stretches)
                self.width *= 2

    def _flops(self, phases: Numbers) -> Numbers:
        result = np.full(len(phases), math.nan)
        for phase in _different(phases):
            result[phases == phase] = self.known.flops.get(int(phase), math.nan)
        return result

    def _count(self, rows: Numbers) -> None:
        self.steps += len(rows)
        for phase in _different(rows[:, 4]):
            self.phases.setdefault(int(phase), float(rows[np.argmax(rows[:, 4] == phase), 0]))
        counts = np.array([count for _, count in self.known.processes], dtype=float)
        begins = np.array([first for first, _ in self.known.processes], dtype=float)
        start_number = (
            np.clip(np.searchsorted(begins, rows[:, 0] - 1, side="right") - 1, 0, None) if len(counts) > 1 else 0
        )
        self.device_seconds += float((rows[:, 3] * counts[start_number]).sum())
        good = np.isfinite(rows[:, 1])
        if not good.all():
            bad = rows[~good]
            self.first_no_number = self.first_no_number if self.no_numbers else float(bad[0, 0])
            self.no_numbers += len(bad)
        numbers = rows[good][:, :2]
        self.latest = np.concatenate([self.latest, numbers[-LAST:]])[-LAST:]
        if len(numbers):
            step, loss = numbers[int(np.argmin(numbers[:, 1]))].tolist()
            if self.lowest is None or loss < self.lowest[1]:
                self.lowest = (step, loss)

    def points(self) -> list[list[float | None]]:
        """Return rows of COLUMNS: a row per range of steps, and the first and last step exactly."""
        rows = self.stretches
        if len(self.pending):
            rows = np.concatenate([rows, _stretches(self.pending, len(self.pending), 1)])
        if not len(rows):
            return []
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(rows[:, 7] > 0, rows[:, 2] / rows[:, 7], math.nan)
        table = np.column_stack([rows[:, 0], rows[:, 1], mean, rows[:, 3], rows[:, 4], rows[:, 5] / 3600, rows[:, 6]])
        points = table.tolist()
        if rows[0, 8] > 1:
            points.insert(0, _exact(self.first))
        if rows[-1, 8] > 1:
            points.append(_exact(self.last))
        return [[value if math.isfinite(value) else None for value in point] for point in points]

    def at(self, step: float, points: Sequence[Sequence[float | None]]) -> list[float | None]:
        """Interpolate tokens, hours and FLOPs at a step."""
        steps = [float(point[0] or 0.0) for point in points]
        result: list[float | None] = []
        for column in (4, 5, 6):
            known = [(x, y) for x, point in zip(steps, points, strict=True) if (y := point[column]) is not None]
            positions, values = [x for x, _ in known], [y for _, y in known]
            result.append(float(np.interp(step, positions, values)) if known else None)
        return result

    def facts(self) -> dict[str, Any]:
        points = self.points()
        validations = [
            [line["step"], _finite_or_none(line["validation"]), *self.at(line["step"], points)]
            for line in self.validations
        ]
        tokens = int(self.tokens) if self.tokens == int(self.tokens) else self.tokens
        return {
            "lines": self.read,
            "steps": self.steps,
            "step": self.last[0] if self.last else None,
            "tokens": tokens,
            "hours": self.seconds / 3600,
            "device_hours": self.device_seconds / 3600,
            "flops": _finite_or_none(self.flops) if self.steps else None,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else None,
            "loss": float(self.latest[:, 1].mean()) if len(self.latest) else None,
            "loss_over": len(self.latest),
            "lowest": self.lowest[1] if self.lowest else None,
            "lowest_at": self.lowest[0] if self.lowest else None,
            "phases": [[phase, first] for phase, first in sorted(self.phases.items())],
            "no_numbers": self.no_numbers,
            "first_no_number": self.first_no_number or None,
            "damaged": self.damaged,
            "damaged_count": self.damaged_count,
            "last_judged": _plain(self.validations[-1]) if self.validations else None,
            "best_judged": _plain(self.best_validation),
            "scores": _over_steps(self.validations),
            "columns": list(COLUMNS),
            "points": points,
            "validations": validations,
        }


def read(path: Path, known: Known, most: int = MOST) -> dict[str, Any]:
    """Return the facts of a whole file; `cut` says what is wrong with its end."""
    curve = LearningCurve(known, most)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            curve.feed(block)
    cut = curve.end()
    return {**curve.facts(), "cut": cut}


def _steps(lines: Sequence[MetricsLine]) -> list[MetricsLine]:
    return [line for line in lines if line.validation is msgspec.UNSET]


def _columns(lines: Sequence[MetricsLine]) -> Numbers:
    """Return step, loss, tokens, seconds and phase of each line; a loss that is not a finite number is NaN."""
    rows = np.empty((len(lines), 5))
    for column, name in enumerate(("step", "loss", "tokens", "seconds", "phase")):
        values = map(operator.attrgetter(name), lines)
        try:
            rows[:, column] = np.fromiter(values, float, len(lines))
        except TypeError:  # a loss is null
            rows[:, column] = [_number(getattr(line, name)) for line in lines]
    losses = rows[:, 1]
    losses[~(np.abs(losses) < ENDLESS)] = math.nan
    return rows


def _stretches(rows: Numbers, width: int, count: int) -> Numbers:
    cube = rows[: width * count].reshape(count, width, 5)
    losses = cube[:, :, 1]
    good = np.isfinite(losses)
    low = np.where(good, losses, math.inf).min(axis=1)
    high = np.where(good, losses, -math.inf).max(axis=1)
    total = np.where(good, losses, 0.0).sum(axis=1)
    ends = cube[:, -1, :]
    return np.column_stack(
        [ends[:, 0], low, total, high, ends[:, 2], ends[:, 3], ends[:, 4], good.sum(axis=1), np.full(count, width)]
    )


def _paired(rows: Numbers) -> Numbers:
    """Merge neighboring ranges; their number is even."""
    even, odd = rows[::2], rows[1::2]
    pairs = odd.copy()
    pairs[:, 1] = np.minimum(even[:, 1], odd[:, 1])
    pairs[:, 2] = even[:, 2] + odd[:, 2]
    pairs[:, 3] = np.maximum(even[:, 3], odd[:, 3])
    pairs[:, 7:] = even[:, 7:] + odd[:, 7:]
    return pairs


def _different(phases: Numbers) -> list[float]:
    low = float(phases.min())
    return [low] if low == phases.max() else [float(phase) for phase in np.unique(phases)]


def _exact(step: Sequence[float]) -> list[float]:
    return [step[0], step[1], step[1], step[1], step[2], step[3] / 3600, step[4]]


def _number(value: object) -> float:
    """Return a loss; NaN if it is missing or too large."""
    if not isinstance(value, int | float) or not abs(value) < ENDLESS:
        return math.nan
    return float(value)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _over_steps(validations: Sequence[Mapping[str, Any]]) -> dict[str, list[list[float]]]:
    """Return each validation score over steps, except those equal to the validation loss."""
    rows = [_plain(line) or {} for line in validations]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("step", "validation"))
    series = {name: [[row["step"], row[name]] for row in rows if name in row] for name in names}
    losses = [[row["step"], row["validation"]] for row in rows if "validation" in row]
    return {name: points for name, points in series.items() if points != losses}


def _plain(line: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if line is None:
        return None
    pairs = ((key, value) for key, value in line.items() if key != "phase")
    return {key: value for key, value in pairs if values.number(value) is not None}
