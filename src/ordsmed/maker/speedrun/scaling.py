"""Scaling: scores against operations, with a fitted line and its errors: what a larger budget brings, if it goes on.

loss = a x operations^b     a straight line in logarithms; of an accuracy its errors in 100 are fitted
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.chart import Mean, power_law
from ordsmed.base.say import operations
from ordsmed.learn.score.seeds import LEVEL, student_t
from ordsmed.maker.speedrun import scores

FURTHER = (2.0, 8.0)  # times the largest budget, for which the line is asked
FEWEST = 3  # budgets, from which on a line has errors
POINTS = 33  # of the drawn line


@dataclass(frozen=True)
class PowerLaw:
    """A line through points in logarithms."""

    a: float
    b: float
    error: float | None  # standard error of b
    residual: float | None  # deviation of the logarithms from the line
    center: float  # mean of the logarithms of x
    width: float  # sum of their squares about it
    count: int

    @staticmethod
    def of(points: Sequence[tuple[float, float]]) -> PowerLaw:
        """Through two points or more."""
        xs, ys = ([math.log(value) for value in axis] for axis in zip(*points, strict=True))
        count = len(points)
        center, level = math.fsum(xs) / count, math.fsum(ys) / count
        width = math.fsum((x - center) ** 2 for x in xs)
        b = math.fsum((x - center) * (y - level) for x, y in zip(xs, ys, strict=True)) / width
        a = level - b * center
        residual = error = None
        if count >= FEWEST:
            residual = math.sqrt(math.fsum((y - a - b * x) ** 2 for x, y in zip(xs, ys, strict=True)) / (count - 2))
            error = residual / math.sqrt(width)
        return PowerLaw(a, b, error, residual, center, width, count)

    def at(self, x: float) -> tuple[float, float, float]:
        """What it says of x, and the ends of the interval in which a further point lies in 95 of 100 cases."""
        mean = self.a + self.b * math.log(x)
        if self.residual is None:
            return math.exp(mean), math.nan, math.nan
        widening = math.sqrt(1 + 1 / self.count + (math.log(x) - self.center) ** 2 / self.width)
        reach = student_t(LEVEL, self.count - 2) * self.residual * widening
        return math.exp(mean), math.exp(mean - reach), math.exp(mean + reach)


def leave(folder: Path, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Pictures, numbers, and lines for a person, of entries that differ in their budgets."""
    entries = sorted(entries, key=lambda facts: facts["flops"])
    fitted = (*scores.LOWER, scores.MASKED_LOSS, scores.BLIMP)
    names = [name for name in fitted if all(name in facts["over"] for facts in entries)]
    lines, kept = list[str](), dict[str, Any]()
    for name in names:
        accuracy = name == scores.BLIMP
        means = [_mean(facts, name, errors=accuracy) for facts in entries]
        law = PowerLaw.of([(mean.x, mean.mean) for mean in means])
        title = f"{name}, errors in 100" if accuracy else name
        path = folder / f"scaling-{name}.svg"
        files.write_text(path, picture(title, means, law))
        kept[name] = {"law": asdict(law), "points": [[mean.x, mean.mean, mean.deviation] for mean in means]}
        lines += [*_lines(title, means[-1].x, law), f"{path}: the picture"]
    files.write_json(folder / "scaling.json", kept)
    return lines


def _mean(facts: Mapping[str, Any], name: str, *, errors: bool) -> Mean:
    over, values = facts["over"][name], [row["scores"][name] for row in facts["runs"]]
    deviation = math.nan if over["deviation"] is None else over["deviation"]
    if errors:
        return Mean(100 - over["mean"], deviation, [100 - value for value in values], facts["flops"])
    return Mean(over["mean"], deviation, values, facts["flops"])


def picture(title: str, means: Sequence[Mean], law: PowerLaw) -> str:
    """Points with their deviations, and the line as far as it is asked."""
    first, last = means[0].x, means[-1].x * FURTHER[-1]
    xs = [first * (last / first) ** (n / (POINTS - 1)) for n in range(POINTS)]
    return power_law(title, means, [(x, *law.at(x)) for x in xs], "operations of training", operations)


def _lines(title: str, last: float, law: PowerLaw) -> list[str]:
    error = f" ± {law.error:.4f}" if law.error is not None else ""
    lines = [f"{title} goes with operations to the power of {law.b:.4f}{error}"]
    for times in FURTHER:
        mean, low, high = law.at(times * last)
        reach = f" ({low:.3f} to {high:.3f})" if law.residual is not None else ""
        lines.append(f"  at {operations(times * last)}, if the line holds: {mean:.3f}{reach}")
    return lines
