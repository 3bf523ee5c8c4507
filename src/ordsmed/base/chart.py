"""Charts as SVG: lines, bands, dots and bars with axes of round numbers. Callers choose the data.

Chart("loss", x, y) -> .line(points, color) .band(...) .dot(...) -> str(chart)
over_log(...)         means with deviations against the logarithm of a number, one line per series
power_law(...)        means against a number on logarithmic axes, with a fitted line
side_by_side(...)     one row per mean
histograms(...)       panels of bars
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 64, 44, 20, 48
PANEL, PANEL_BOTTOM = 250, 40  # heights in histograms
COLORS = ("#1f6feb", "#d1671b", "#1a7f52", "#8250df", "#b35900", "#0a7ea4")
INK, FAINT = "#24292f", "#d8dee4"
LONGEST = 50  # characters of a row's name

Scale = Callable[[float], float]  # a number -> its coordinate
Point = tuple[float, float]


def linear(low: float, high: float, begin: float, end: float) -> Scale:
    return lambda value: begin + (min(max(value, low), high) - low) / (high - low) * (end - begin)


def marks(low: float, high: float, about: int) -> list[float]:
    """Return about `about` round numbers in a range."""
    raw = (high - low) / about
    unit = 10 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw)
    start = math.ceil(low / step)
    return [round(i * step, 10) for i in range(start, math.floor(high / step) + 1)]


def path(points: Sequence[Point], digits: int = 1) -> str:
    """Return the `d` attribute of a line through points."""
    return "M" + "L".join(f"{x:.{digits}f} {y:.{digits}f}" for x, y in points)


class Chart:
    """The elements of a chart. `x` and `y` scale numbers to coordinates."""

    def __init__(self, title: str, x: Scale, y: Scale, *, left: float = LEFT, height: int = HEIGHT) -> None:
        self.x, self.y, self.left, self.height = x, y, left, height
        self.parts: list[str] = []
        if title:
            self.text(left, 26, title, size=15)

    def text(self, x: float, y: float, text: str, anchor: str = "start", color: str = INK, *, size: int = 12) -> None:
        """Add a line of text at coordinates of the picture."""
        style = f'font-family="sans-serif" font-size="{size}" text-anchor="{anchor}" fill="{color}"'
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{html.escape(text)}</text>')

    def rule(self, d: str, color: str = FAINT, attributes: str = "") -> None:
        """Add a straight line at coordinates of the picture."""
        self.parts.append(f'<path d="{d}" stroke="{color}"{attributes}/>')

    def line(self, points: Sequence[Point], color: str, opacity: float = 1.0, more: str = "") -> None:
        """Add a line through points, thinner if it is transparent."""
        d = path([(self.x(x), self.y(y)) for x, y in points])
        options = more or f' stroke-width="{1 if opacity < 1 else 2}" opacity="{opacity}"'
        self.parts.append(f'<path d="{d}" fill="none" stroke="{color}"{options}/>')

    def band(self, points: Sequence[tuple[float, float, float]], color: str, opacity: float) -> None:
        """Add the area between two lines, given as (x, low, high)."""
        around = [*((x, low) for x, low, _ in points), *((x, high) for x, _, high in reversed(points))]
        d = path([(self.x(x), self.y(y)) for x, y in around])
        self.parts.append(f'<path d="{d}Z" fill="{color}" opacity="{opacity}"/>')

    def dot(self, x: float, y: float, radius: float, color: str = INK, opacity: float = 1.0) -> None:
        location = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}"'
        faint = f' opacity="{opacity}"' if opacity < 1 else ""
        self.parts.append(f'<circle {location} r="{radius}" fill="{color}"{faint}/>')

    def bar(self, x: float, low: float, high: float, color: str, more: str = "") -> None:
        self.rule(f"M{self.x(x):.1f} {self.y(high):.1f}V{self.y(low):.1f}", color, more)

    def levels(self, low: float, high: float) -> None:
        for mark in marks(low, high, 6):
            self.rule(f"M{LEFT} {self.y(mark):.1f}H{WIDTH - RIGHT}")
            self.text(LEFT - 8, self.y(mark) + 4, f"{mark:g}", "end")

    def below(self, numbers: Mapping[float, str], label: str) -> None:
        """Add tick labels and a title to the x axis. Tick labels that would overlap are left out."""
        last = -1e9
        for number, name in numbers.items():
            if self.x(number) - last > 7 * len(name) + 8:
                self.text(self.x(number), self.height - BOTTOM + 18, name, "middle")
                last = self.x(number)
        self.text((self.left + WIDTH - RIGHT) / 2, self.height - 10, label, "middle")

    def __str__(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *self.parts, "</svg>\n"])


def over_steps(title: str, steps: tuple[float, float], values: tuple[float, float]) -> Chart:
    """Return an empty chart of losses over steps with its axes."""
    (first, last), (low, high) = steps, values
    chart = Chart(title, linear(first, last, LEFT, WIDTH - RIGHT), linear(low, high, HEIGHT - BOTTOM, TOP))
    chart.levels(low, high)
    chart.below({mark: f"{mark:,.0f}" for mark in marks(first, last, 7)}, "step")
    chart.text(LEFT - 8, TOP - 10, "loss", "end")
    return chart


@dataclass(frozen=True)
class Mean:
    """A mean with its standard deviation and the averaged values."""

    mean: float
    deviation: float = math.nan
    values: Sequence[float] = ()
    x: float = 0.0
    best: bool = False
    digits: int = 2

    @property
    def ends(self) -> Point:
        reach = self.deviation if math.isfinite(self.deviation) else 0.0
        return self.mean - reach, self.mean + reach

    def __str__(self) -> str:
        more = f" ± {self.deviation:.{self.digits}f}" if math.isfinite(self.deviation) else ""
        return f"{self.mean:.{self.digits}f}{more}"


def _reach(means: Sequence[Mean], *more: float) -> Point:
    numbers = [*more, *(number for mean in means for number in (*mean.ends, *mean.values))]
    margin = max(0.06 * (max(numbers) - min(numbers)), 0.05)
    return min(numbers) - margin, max(numbers) + margin


def over_log(title: str, lines: Mapping[str, Sequence[Mean]], label: str, guessing: float | None = None) -> str:
    """Return a chart of means against the logarithm of x. Means at x = 0 are drawn left of the scale."""
    means = [mean for line in lines.values() for mean in line]
    numbers = sorted({mean.x for mean in means})
    first = min(number for number in numbers if number > 0)
    decades = max(math.log10(numbers[-1] / first), 0.3)
    begin = LEFT + (90 if numbers[0] == 0 else 16)
    across = linear(0, decades, begin, WIDTH - RIGHT - 16)
    low, high = _reach(means, *([] if guessing is None else [guessing]))
    up = linear(low, high, HEIGHT - BOTTOM, TOP)
    chart = Chart(title, lambda x: across(math.log10(x / first)) if x else LEFT + 24, up)
    chart.levels(low, high)
    chart.below({x: f"{x:,}" if x < 1_000_000 else f"{x / 1e6:,.4g} M" for x in numbers}, label)
    if guessing is not None:
        chart.rule(f"M{LEFT} {up(guessing):.1f}H{WIDTH - RIGHT}", INK, ' stroke-dasharray="2 4"')
        chart.text(WIDTH - RIGHT, up(guessing) - 6, f"guessing {guessing:.1f}", "end")
    for number, (name, line) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        chart.line([(mean.x, mean.mean) for mean in line if mean.x], color)
        for mean in line:
            chart.bar(mean.x, *mean.ends, color, ' opacity="0.6"')
            for value in mean.values:
                chart.dot(mean.x, value, 2.5, color, 0.35)
            chart.dot(mean.x, mean.mean, 4, color)
        if len(lines) > 1:
            chart.text(LEFT + 12, TOP + 16 + 18 * number, name, color=color)
    return str(chart)


def power_law(
    title: str,
    means: Sequence[Mean],
    curve: Sequence[tuple[float, float, float, float]],
    label: str,
    name: Callable[[float], str],
) -> str:
    """Return a chart of means on logarithmic axes, with a fitted curve and its band, given as (x, y, low, high)."""
    known = [number for _, *row in curve for number in row if math.isfinite(number)]
    numbers = [number for mean in means for number in (*mean.ends, *mean.values)]
    low, high = (math.log(number) for number in (min(known + numbers), max(known + numbers)))
    across = linear(math.log(curve[0][0]), math.log(curve[-1][0]), LEFT + 16, WIDTH - RIGHT - 16)
    up = linear(low - 0.01, high + 0.01, HEIGHT - BOTTOM, TOP)
    chart = Chart(title, lambda x: across(math.log(x)), lambda y: up(math.log(y)))
    for mark in marks(math.exp(low), math.exp(high), 6) or [math.exp(low)]:
        chart.rule(f"M{LEFT} {chart.y(mark):.1f}H{WIDTH - RIGHT}")
        chart.text(LEFT - 8, chart.y(mark) + 4, f"{mark:g}", "end")
    chart.below({mean.x: name(mean.x) for mean in means} | {curve[-1][0]: name(curve[-1][0])}, label)
    if all(map(math.isfinite, curve[0][2:])):
        chart.band([(x, least, most) for x, _, least, most in curve], COLORS[0], 0.12)
    chart.line([(x, middle) for x, middle, *_ in curve], COLORS[0], more=' stroke-width="1.5" stroke-dasharray="5 4"')
    for mean in means:
        chart.bar(mean.x, *mean.ends, COLORS[0], ' opacity="0.6"')
        for value in mean.values:
            chart.dot(mean.x, value, 2.5, COLORS[0], 0.35)
        chart.dot(mean.x, mean.mean, 4, COLORS[0])
    return str(chart)


def side_by_side(title: str, means: Sequence[tuple[str, Mean]], label: str) -> str:
    """Return a chart with one row per mean: values as dots, the deviation as a bar, the best in another color."""
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name, _ in means]
    left, right = 26 + 7 * max(map(len, names)), WIDTH - RIGHT - 100
    low, high = _reach([mean for _, mean in means])
    height = TOP + 34 * len(means) + BOTTOM
    chart = Chart(title, linear(low, high, left, right), float, left=16, height=height)
    for mark in marks(low, high, 6):
        chart.rule(f"M{chart.x(mark):.1f} {TOP}V{height - BOTTOM}")
        chart.text(chart.x(mark), height - BOTTOM + 18, f"{mark:g}", "middle")
    for number, (name, (_, mean)) in enumerate(zip(names, means, strict=True)):
        level = TOP + 34 * number + 17
        color, ink = (COLORS[1], COLORS[1]) if mean.best else (COLORS[0], INK)
        chart.text(left - 10, level + 4, name, "end", ink)
        chart.line([(end, level) for end in mean.ends], color)
        chart.rule(f"M{chart.x(mean.mean):.1f} {level - 8}v16", color, ' stroke-width="2"')
        for value in mean.values:
            chart.dot(value, level, 4, color, 0.5)
        chart.text(WIDTH - RIGHT, level + 4, str(mean), "end", ink)
    chart.text((left + right) / 2, height - 10, label, "middle")
    return str(chart)


def histograms(panels: Mapping[str, Mapping[str, NDArray[np.int64]]], name: Callable[[int], str]) -> str:
    """Return panels of bars: the share of each bin, from the first non-empty one to the last."""
    chart = Chart("", float, float, height=PANEL * len(panels) + 10)
    for number, (title, series) in enumerate(panels.items()):
        _panel(
            chart, title, {key: counts / max(counts.sum(), 1) for key, counts in series.items()}, number * PANEL, name
        )
    return str(chart)


def _panel(
    chart: Chart, title: str, shares: Mapping[str, NDArray[np.float64]], top: int, name: Callable[[int], str]
) -> None:
    filled = np.flatnonzero(sum(shares.values(), np.zeros(1)))
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
    most = max([*(share.max() for share in shares.values()), 1e-9])
    floor, step = top + PANEL - PANEL_BOTTOM, (WIDTH - LEFT - RIGHT) / (last - first + 1)
    tall = PANEL - TOP - PANEL_BOTTOM
    chart.text(LEFT, top + 26, title, size=15)
    for mark in (0.5, 1.0):
        chart.rule(f"M{LEFT} {floor - mark * tall:.1f}H{WIDTH - RIGHT}")
        chart.text(LEFT - 8, floor - mark * tall + 4, f"{mark * most:.0%}", "end")
    for number, (key, share) in enumerate(shares.items()):
        color, wide = COLORS[number % 3], 0.84 * step / len(shares)
        chart.text(WIDTH - RIGHT - 90 * (len(shares) - 1 - number), top + 26, key, "end", color)
        for bin in range(first, last + 1):
            height, x = share[bin] / most * tall, LEFT + (bin - first + 0.08) * step + number * wide
            size = f'x="{x:.1f}" y="{floor - height:.1f}" width="{wide:.1f}" height="{height:.1f}"'
            chart.parts.append(f'<rect {size} fill="{color}"/>')
    chart.rule(f"M{LEFT} {floor}H{WIDTH - RIGHT}", INK)
    for bin in range(first, last + 1):
        chart.text(LEFT + (bin - first + 0.5) * step, floor + 16, name(bin), "middle")
