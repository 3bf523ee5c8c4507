"""Charts of a page: curves as SVG that stretches with the page, with labels as HTML text, readable on a phone."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ordsmed.base.chart import Scale, marks, path
from ordsmed.tell.report.tables import count, cut

SIDE = 1000  # side of the square in which curves are drawn, stretched to its shape on the page
BUCKETS = 140  # points of a drawn curve
CALM = 5  # values further above the lowest than CALM times the typical distance are cut off
COLORED = 8  # curves with a separate color; others are gray
SCALES = (
    (1e21, "10²¹"),
    (1e18, "10¹⁸"),
    (1e15, "10¹⁵"),
    (1e12, "10¹²"),
    (1e9, "billions"),
    (1e6, "millions"),
    (1e3, "thousands"),
)


@dataclass(frozen=True)
class PlotPoint:
    """Point of a curve: lowest, mean and highest value at x."""

    x: float
    low: float
    mean: float
    high: float


@dataclass
class PlotCurve:
    """A line with its band; `dots` are validations."""

    name: str
    points: list[PlotPoint | None]  # None: a gap
    dots: list[tuple[float, float]] = field(default_factory=list)
    color: int | None = None
    banded: bool = True


@dataclass
class PlotAxis:
    key: str
    label: str
    low: float
    high: float
    logarithmic: bool = False
    marks: list[tuple[float, str]] = field(default_factory=list)

    def place(self, value: float) -> float:
        """Return the horizontal coordinate of a value in the plot: `low` is at 0, `high` at SIDE."""
        if self.logarithmic:
            return SIDE * math.log10(value / self.low) / (math.log10(self.high / self.low) or 1.0)
        return SIDE * (value - self.low) / ((self.high - self.low) or 1.0)


def axis_of(key: str, label: str, values: Sequence[float], *, logarithmic: bool = False) -> PlotAxis:
    """Return an axis from the lowest to the highest value, with marks at round numbers."""
    low, high = min(values), max(values)
    if logarithmic and low > 0:
        high = max(high, low * 2)
        result = PlotAxis(key, label, low, high, True)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if len(decades) > 4 else (1, 2, 5)
        result.marks = [(v, count(v)) for d in decades for s in steps if low <= (v := s * 10.0**d) <= high]
        return result
    high = high if high > low else low + 1.0
    low = 0.0 if 0 < low < 0.1 * high else low
    return PlotAxis(key, label, low, high, marks=[(mark, f"{mark:,.10g}") for mark in marks(low, high, 6)])


def scaled(key: str, label: str, highest: float) -> tuple[float, str]:
    """Return the divisor of an axis' numbers and its label in this unit."""
    if key == "hours":
        unit, name = (1 / 3600, "seconds") if highest < 0.05 else (1 / 60, "minutes") if highest < 2 else (1.0, "hours")
        unit, name = (24.0, "days") if highest > 96 else (unit, name)
        return unit, f"{name} of steps"
    if key == "step":
        return 1.0, label
    return next(((large, f"{label} ({name})") for large, name in SCALES if highest >= 2 * large), (1.0, label))


def bucketed(rows: Sequence[Sequence[float | None]], column: int, size: int = BUCKETS) -> list[PlotPoint | None]:
    """Return the points of a curve over a column, with neighbors merged if there are too many."""
    width = max(1, math.ceil(len(rows) / size))
    result: list[PlotPoint | None] = []
    for start in range(0, len(rows), width):
        bucket = [row for row in rows[start : start + width] if row[column] is not None and row[2] is not None]
        if not bucket:
            result.append(None)
            continue
        means = [row[2] or 0.0 for row in bucket]
        low, high = min(row[1] or 0.0 for row in bucket), max(row[3] or 0.0 for row in bucket)
        result.append(PlotPoint(bucket[-1][column] or 0.0, low, sum(means) / len(means), high))
    return result


def band(curves: Sequence[Sequence[PlotPoint | None]]) -> list[PlotPoint | None]:
    """Merge curves of several seeds: mean, lowest and highest, over the range that all have."""
    lines = [[point for point in curve if point] for curve in curves]
    lines = [line for line in lines if line]
    if not lines:
        return []
    low, high = max(line[0].x for line in lines), min(line[-1].x for line in lines)
    grid = [point.x for point in max(lines, key=len) if low <= point.x <= high] or [low]
    result: list[PlotPoint | None] = []
    for x in grid:
        means = [_between(line, x) for line in lines]
        result.append(PlotPoint(x, min(means), sum(means) / len(means), max(means)))
    return result


def _between(line: Sequence[PlotPoint], x: float) -> float:
    import bisect

    at = bisect.bisect_left([point.x for point in line], x)
    if at == 0 or at == len(line):
        return line[min(at, len(line) - 1)].mean
    left, right = line[at - 1], line[at]
    share = (x - left.x) / ((right.x - left.x) or 1.0)
    return left.mean + share * (right.mean - left.mean)


def value_range(curves: Sequence[PlotCurve], *, bands: bool = False) -> tuple[float, float]:
    """Return the lowest and highest value to show; the steep start of a run and outliers are cut off.

    With `bands`, whole bands are shown.
    """
    low = min(min([y for _, y in c.dots] + [p.low if c.banded else p.mean for p in _later(c)]) for c in curves)
    tops = []
    for curve in curves:
        values = [p.high if bands else p.mean for p in _later(curve)] + [y for _, y in curve.dots]
        tops.append(highest_typical(values, low, 0.9))
    high = highest_typical(tops, low, 0.5)
    room = 0.05 * (high - low) or max(1e-3, 0.01 * abs(high))
    return low - room, high + room


def _level(value: float) -> PlotCurve:
    return PlotCurve("", [PlotPoint(0.0, value, value, value)])


def _later(curve: PlotCurve) -> list[PlotPoint]:
    """Return a curve's points without its very beginning, or all if there are no others."""
    later = [*curve.points[math.ceil(len(curve.points) * 0.04) :], *curve.points[-1:]]
    return [point for point in later if point] or [point for point in curve.points if point]


def highest_typical(values: Sequence[float], low: float, share: float) -> float:
    """Return the highest value that is not far above the quantile `share` of the values."""
    ordered = sorted(values)
    typical = ordered[int((len(ordered) - 1) * share)]
    limit = typical + CALM * (typical - low)
    return ordered[-1] if limit == low else max(value for value in ordered if value <= limit)


def cut_off(curves: Sequence[PlotCurve]) -> list[tuple[str, float]]:
    _, high = value_range(curves)
    tops = ((c.name, max([p.mean for p in _later(c)] + [y for _, y in c.dots])) for c in curves)
    return [(name, top) for name, top in tops if top > high]


def plot(
    axis: PlotAxis,
    curves: Sequence[PlotCurve],
    label: str,
    phases: Sequence[tuple[float, str]] = (),
    *,
    bands: bool = False,
    guessing: float | None = None,
) -> str:
    """Return the figure; `phases`: starts of phases; `bands`: show them whole; `guessing`: level of guessing."""
    low, high = value_range([*curves, *([_level(guessing)] if guessing is not None else [])], bands=bands)
    # `reach` ignores outliers, so the level of guessing may be outside of the figure: then it is not drawn
    guessing = guessing if guessing is not None and low <= guessing <= high else None

    def y(value: float) -> float:
        return SIDE * (high - value) / (high - low)

    levels = marks(low, high, 5)
    lines = [f'<path class="grid" d="M0 {y(m):.0f}H{SIDE}"/>' for m in levels]
    lines += [f'<path class="phase" d="M{axis.place(x):.0f} 0V{SIDE}"/>' for x, _ in phases if axis.low < x < axis.high]
    lines += [f'<path class="phase" d="M0 {y(guessing):.0f}H{SIDE}"/>'] if guessing is not None else []
    ordered = sorted(curves, key=lambda curve: curve.color is not None)
    lines += [_band(curve, axis, y) for curve in ordered if curve.banded]
    lines += [_line(curve, axis, y) for curve in ordered]
    lines += [_dots(curve, axis, y) for curve in ordered if curve.dots]
    svg = (
        f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(label)} over {html.escape(axis.label)}">{"".join(lines)}</svg>'
    )
    ticks = "".join(f'<i class="y" style="top:{y(m) / 10:.2f}%">{m:,.6g}</i>' for m in levels)
    ticks += "".join(
        f'<i class="x{" odd" if number % 2 else ""}" style="left:{axis.place(mark) / 10:.2f}%">{text}</i>'
        for number, (mark, text) in enumerate(axis.marks)
    )
    ticks += "".join(
        f'<i class="p{" before" if axis.place(x) > 0.8 * SIDE else ""}" style="left:{axis.place(x) / 10:.2f}%">'
        f"{html.escape(text)}</i>"
        for x, text in phases
        if axis.low < x < axis.high
    )
    ticks += f'<i class="g" style="top:{y(guessing) / 10:.2f}%">guessing</i>' if guessing is not None else ""
    data = f'data-x0="{axis.low:.8g}" data-x1="{axis.high:.8g}" data-y0="{low:.8g}" data-y1="{high:.8g}"'
    mode = ' data-log="1"' if axis.logarithmic else ""
    return (
        f'<figure class="plot" data-axis="{axis.key}" data-label="{html.escape(axis.label)}" {data}{mode}>'
        f'<div class="value">{html.escape(label)}</div><div class="area">{svg}{ticks}</div>'
        f"<figcaption>{html.escape(axis.label)}</figcaption></figure>"
    )


def color(curve: PlotCurve) -> str:
    return "other" if curve.color is None else f"c{curve.color}"


def _inside(value: float) -> float:
    return min(max(value, -SIDE), 2 * SIDE)


def _path(kind: str, curve: PlotCurve, d: str, titled: bool = False) -> str:
    name = html.escape(cut(curve.name))
    end = f"><title>{name}</title></path>" if titled else "/>"
    return f'<path class="{kind} {color(curve)}" data-name="{name}" d="{d}"{end}'


def _stretches(curve: PlotCurve) -> list[list[PlotPoint]]:
    return [[p for p in points if p] for gap, points in groupby(curve.points, lambda p: p is None) if not gap]


def _line(curve: PlotCurve, axis: PlotAxis, y: Scale) -> str:
    parts = (path([(axis.place(p.x), _inside(y(p.mean))) for p in points], 0) for points in _stretches(curve))
    return _path("line", curve, "".join(parts), titled=True)


def _band(curve: PlotCurve, axis: PlotAxis, y: Scale) -> str:
    edges = (
        [*((p.x, p.high) for p in points), *((p.x, p.low) for p in reversed(points))]
        for points in _stretches(curve)
        if len(points) > 1
    )
    parts = (path([(axis.place(x), _inside(y(value))) for x, value in edge], 0) + "Z" for edge in edges)
    return _path("band", curve, "".join(parts))


def _dots(curve: PlotCurve, axis: PlotAxis, y: Scale) -> str:
    """Return lines of zero length with round ends, which are circles that do not stretch."""
    return _path("dots", curve, "".join(f"M{axis.place(x):.0f} {_inside(y(v)):.0f}h0" for x, v in curve.dots))


def legend(curves: Sequence[PlotCurve], notes: Mapping[str, str]) -> str:
    named = [curve for curve in curves if curve.color is not None]
    items = [
        f'<li data-name="{html.escape(cut(c.name))}"><b class="key {color(c)}"></b>{html.escape(cut(c.name))}'
        f"<small>{html.escape(notes.get(c.name, ''))}</small></li>"
        for c in named
    ]
    if unnamed := len(curves) - len(named):
        items.append(f'<li><b class="key other"></b>{unnamed:,} others<small>names appear on hover</small></li>')
    return f'<ul class="legend">{"".join(items)}</ul>'
