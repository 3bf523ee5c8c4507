"""Bands over seeds: the curves of several runs cut into the same ranges of steps, with statistics of each range."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ordsmed.learn.score.seeds import OverSeeds, is_number, over_seeds

STRETCHES = 160  # most ranges of a band

Course = Sequence[tuple[float, float]]  # steps with the value measured at each


@dataclass(frozen=True)
class BandPoint:
    """A range of steps: its mean step, and statistics of the runs' means in it."""

    step: float
    over: OverSeeds


def bands(curves: Sequence[Course], most: int = STRETCHES) -> list[BandPoint]:
    """Return at most `most` ranges of steps, those with measurements; values that are not finite are left out."""
    steps = [step for curve in curves for step, value in curve if is_number(value)]
    if not steps:
        return []
    first, width = min(steps), max(1.0, (max(steps) - min(steps) + 1) / most)
    means: dict[int, list[float]] = defaultdict(list)
    steps_in: dict[int, list[float]] = defaultdict(list)
    for curve in curves:
        in_curve: dict[int, list[float]] = defaultdict(list)
        for step, value in curve:
            if is_number(value):
                number = int((step - first) / width)
                in_curve[number].append(value)
                steps_in[number].append(step)
        for number, values in in_curve.items():
            means[number].append(math.fsum(values) / len(values))
    return [
        BandPoint(math.fsum(steps_in[number]) / len(steps_in[number]), over_seeds(means[number]))
        for number in sorted(means)
    ]
