"""Bands over seeds: statistics of several runs' curves in the same ranges of steps."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ordsmed.learn.score.seeds import OverSeeds, is_number, over_seeds

MAX_RANGES = 160  # of a band

Curve = Sequence[tuple[float, float]]  # (step, value)


@dataclass(frozen=True)
class BandPoint:
    """A range of steps: its mean step, and statistics of the runs' means in it."""

    step: float
    over: OverSeeds


def bands(curves: Sequence[Curve], most: int = MAX_RANGES) -> list[BandPoint]:
    """Return the ranges of steps with measurements, at most `most`; values that are not finite are ignored."""
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
