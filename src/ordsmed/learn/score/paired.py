"""Two models on the same examples: mean differences whose errors know of kinds of examples, and exact tests of pairs.

    values, weights, groups  ->  clustered(...)  ->  mean 1.3, error 0.4, of 67 groups
    right of one alone 41, of the other alone 22  ->  sign_test(41, 22)  ->  p 0.022

Examples of one kind (a paradigm of BLiMP) are right and wrong together, so that many of them tell less than as many of
different kinds: errors are those of sums over kinds (Liang and Zeger 1986, with G / (G - 1)).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ordsmed.learn.score.seeds import LEVEL, student_t, within_t

MANY = 1_000  # degrees of freedom from which on Student's t is the normal distribution to three digits


@dataclass(frozen=True)
class Clustered:
    """A mean, and how sure it is."""

    mean: float
    error: float  # standard error; NaN: there is but one group
    groups: int

    @property
    def interval(self) -> tuple[float, float]:
        """In which the mean lies in 95 of 100 such samples of groups, by Student's t."""
        reach = self.error * student_t(LEVEL, self._freedom) if self.groups > 1 else math.nan
        return self.mean - reach, self.mean + reach

    @property
    def p(self) -> float:
        """How often chance alone leaves a mean as far from 0."""
        if self.groups < 2:
            return math.nan
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return max(0.0, 1 - within_t(abs(self.mean) / self.error, self._freedom))  # rounding may leave less than none

    @property
    def _freedom(self) -> int:
        return min(self.groups - 1, MANY)


def clustered(values: Sequence[float], weights: Sequence[float], groups: Sequence[str]) -> Clustered:
    """The sum of values over that of weights; a group "" is an example by itself."""
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
    """How often a fair coin is as uneven, thrown for each pair that is not even (McNemar's exact test)."""
    count, ways, chances = more + less, 1, 1
    for n in range(min(more, less)):  # each number of ways from the one before: all by themselves take for ever
        ways = ways * (count - n) // (n + 1)
        chances += ways
    return float(min(1.0, 2 * chances / 2**count))


def holm(chances: Sequence[float]) -> list[float]:
    """Of several tests: how often chance alone leaves one or more of them as uneven (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda n: chances[n])
    result, least = [1.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, chances[number] * (len(chances) - rank)))
        result[number] = least
    return result
