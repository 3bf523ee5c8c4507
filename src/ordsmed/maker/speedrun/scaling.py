"""Scaling: scores against operations, with a fitted power law and its errors, to predict larger budgets.

loss = a x operations^b            a straight line in logarithms; for an accuracy, errors in percent are fitted
loss = floor + a x operations^b    if a floor explains more than chance does: a recipe cannot get below it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.chart import Mean, power_law
from ordsmed.base.say import operations
from ordsmed.learn.score.seeds import LEVEL, student_t
from ordsmed.maker.speedrun import scores

FURTHER = (2.0, 8.0)  # multiples of the largest budget to predict
FEWEST = 3  # budgets needed for errors of a line
POINTS = 33  # points of the drawn line
STEEPEST, FLATTEST = -3.0, -0.01  # powers that are searched with a floor


@dataclass(frozen=True)
class PowerLaw:
    """A fitted power law with an optional floor: floor + a x (x / center)^b."""

    floor: float  # 0: none
    a: float
    b: float
    error: float | None  # standard error of b
    residual: float | None  # deviation of the logarithms from the line
    center: float  # geometric mean of x
    covariance: list[list[float]]  # of log a, b and the floor, divided by the squared residual
    count: int

    @staticmethod
    def of(points: Sequence[tuple[float, float]]) -> PowerLaw:
        """Fit two points or more, with a floor if it lowers the residuals by more than chance (F test)."""
        xs, ys = np.array(points, dtype=float).T
        center = math.exp(np.log(xs).mean())
        b, a = np.polyfit(np.log(xs / center), np.log(ys), 1)
        straight = PowerLaw._fitted(xs, ys, center, 0.0, math.exp(a), float(b))
        above = _above_floor(xs / center, ys) if len(xs) > FEWEST else None
        if above is None:
            return straight
        curved, freedom = PowerLaw._fitted(xs, ys, center, *above), len(xs) - 3
        gained = straight._squares(xs, ys) - curved._squares(xs, ys)
        chance = student_t(LEVEL, freedom) ** 2 * curved._squares(xs, ys) / freedom
        return curved if gained > chance else straight

    @staticmethod
    def _fitted(
        xs: NDArray[np.float64], ys: NDArray[np.float64], center: float, floor: float, a: float, b: float
    ) -> PowerLaw:
        bare = PowerLaw(floor, a, b, None, None, center, [], len(xs))
        if len(xs) < FEWEST:
            return bare
        derivatives = np.array([bare._derivatives(x) for x in xs])
        covariance = np.linalg.pinv(derivatives.T @ derivatives)
        residual = math.sqrt(bare._squares(xs, ys) / (len(xs) - derivatives.shape[1]))
        error = residual * math.sqrt(covariance[1, 1])
        return replace(bare, error=error, residual=residual, covariance=covariance.tolist())

    def _value(self, x: float) -> float:
        return self.floor + self.a * (x / self.center) ** self.b

    def _derivatives(self, x: float) -> list[float]:
        """Return the derivatives of the value's logarithm by the logarithm of a, by b, and by the floor."""
        value = self._value(x)
        above = 1 - self.floor / value
        return [above, above * math.log(x / self.center), *([1 / value] if self.floor else [])]

    def _squares(self, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> float:
        return math.fsum(math.log(y / self._value(x)) ** 2 for x, y in zip(xs, ys, strict=True))

    def at(self, x: float) -> tuple[float, float, float]:
        """Return the value at x, and the ends of the 95% prediction interval."""
        mean = self._value(x)
        if self.residual is None:
            return mean, math.nan, math.nan
        derivatives = np.array(self._derivatives(x))
        widening = math.sqrt(1 + derivatives @ np.array(self.covariance) @ derivatives)
        reach = student_t(LEVEL, self.count - len(derivatives)) * self.residual * widening
        return mean, mean * math.exp(-reach), mean * math.exp(reach)


def _above_floor(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> tuple[float, float, float] | None:
    """Return floor, a and b of the relative least-squares fit, or None if the floor or the fall is implausible.

    For a given power, floor and a follow by linear least squares, so only the power is searched.
    """
    low, high = math.log(-FLATTEST), math.log(-STEEPEST)
    best = (math.inf, 0.0, 0.0, 0.0)
    for _ in range(6):
        tried = np.linspace(low, high, 65)
        for power in -np.exp(tried):
            columns = np.stack([np.ones_like(xs), xs**power], 1) / ys[:, None]
            (floor, a), *_ = np.linalg.lstsq(columns, np.ones_like(ys))
            best = min(best, (float(((columns @ (floor, a) - 1) ** 2).sum()), float(floor), float(a), float(power)))
        at, step = math.log(-best[3]), tried[1] - tried[0]
        low, high = at - step, at + step
    floor, a, power = best[1:]
    return (floor, a, power) if floor > 0 and a > 0 and STEEPEST < power < FLATTEST else None


def leave(folder: Path, entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write pictures and fits of entries with different budgets; return lines on them."""
    if len({facts["flops"] for facts in entries}) < 2:
        return ["all budgets come to as many steps: there is no curve"]
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
    """Return an SVG of the points with their deviations, and the fitted line."""
    first, last = means[0].x, means[-1].x * FURTHER[-1]
    xs = [first * (last / first) ** (n / (POINTS - 1)) for n in range(POINTS)]
    return power_law(title, means, [(x, *law.at(x)) for x in xs], "operations of training", operations)


def _lines(title: str, last: float, law: PowerLaw) -> list[str]:
    error = f" ± {law.error:.4f}" if law.error is not None else ""
    above = f" above {law.floor:.3f}" if law.floor else ""
    lines = [f"{title}{above} goes with operations to the power of {law.b:.4f}{error}"]
    for times in FURTHER:
        mean, low, high = law.at(times * last)
        reach = f" ({low:.3f} to {high:.3f})" if law.residual is not None else ""
        lines.append(f"  at {operations(times * last)}, if the line holds: {mean:.3f}{reach}")
    return lines
