"""Two models on the same examples: mean differences with clustered errors, and exact tests of pairs.

    values, weights, groups  ->  clustered(...)  ->  mean 1.3, error 0.4, of 67 groups
    only the first right 41, only the second right 22  ->  sign_test(41, 22)  ->  p 0.022

Examples of one group (a paradigm of BLiMP) are correlated. Errors are therefore computed from sums over groups (Liang
and Zeger 1986, with the factor G / (G - 1)).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ordsmed.learn.score.seeds import LEVEL, student_t, within_t

MANY = 1_000  # degrees of freedom from which Student's t equals the normal distribution to three digits


@dataclass(frozen=True)
class Clustered:
    mean: float
    error: float  # standard error; NaN for a single group
    groups: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the mean, by Student's t."""
        reach = self.error * student_t(LEVEL, self._freedom) if self.groups > 1 else math.nan
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """Return the probability of a mean at least this far from 0 by chance."""
        if self.groups < 2:
            return math.nan
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return max(0.0, 1 - within_t(abs(self.mean) / self.error, self._freedom))  # rounding may give a number below 0

    @property
    def _freedom(self) -> int:
        return min(self.groups - 1, MANY)


def clustered(values: Sequence[float], weights: Sequence[float], groups: Sequence[str]) -> Clustered:
    """Return the sum of values divided by the sum of weights; an example with the group "" is a separate group."""
    total = math.fsum(weights)
    mean = math.fsum(values) / total
    sums: dict[object, list[float]] = defaultdict(list)
    for number, (value, weight, group) in enumerate(zip(values, weights, groups, strict=True)):
        sums[group or number].append(value - mean * weight)
    if len(sums) < 2:
        return Clustered(mean, math.nan, len(sums))
    squares = math.fsum(math.fsum(parts) ** 2 for parts in sums.values())
    return Clustered(mean, math.sqrt(squares * len(sums) / (len(sums) - 1)) / total, len(sums))


def sign_test(more: int, less: int) -> float:
    """Return McNemar's exact p: the probability that a fair coin, thrown more + less times, is this uneven."""
    count, ways, chances = more + less, 1, 1
    for n in range(min(more, less)):  # update the binomial coefficient: computing each by itself is too slow
        ways = ways * (count - n) // (n + 1)
        chances += ways
    return float(min(1.0, 2 * chances / 2**count))


def holm(chances: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, adjusted so that together they are as strict as one (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda n: chances[n])
    result, highest = [1.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        highest = max(highest, min(1.0, chances[number] * (len(chances) - rank)))
        result[number] = highest
    return result
