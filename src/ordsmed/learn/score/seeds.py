"""Statistics over seeds: mean, sample deviation and interval of the mean; comparison of two recipes by seed.

    {1: 8.72, 2: 8.69, ...}  ->  over_seeds(values)  ->  mean 8.70, deviation 0.0158, interval [8.680, 8.720]

Values are assumed to be drawn from a normal distribution, as for Student's t. Sums are exact, so the order of seeds
does not change the result. The caller removes and reports values that are not finite.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95  # of intervals
MIN_RUNS = 2  # for a deviation
SAME_SIGN = 3  # from this many seeds with differences of one sign, more seeds are suggested
MAX_SEEDS = 100  # that are suggested
INFINITE = 1e30  # values from here on count as infinite


@dataclass(frozen=True)
class OverSeeds:
    count: int
    mean: float
    deviation: float | None  # of the sample (n - 1); None for a single run
    least: float
    most: float
    interval: tuple[float, float] | None  # 95 % confidence interval of the mean over all seeds


@dataclass(frozen=True)
class PairedSeeds:
    """The differences between two recipes, second minus first, seed by seed."""

    differences: dict[int, float]
    over: OverSeeds

    @property
    def differs(self) -> bool:
        """Return whether the interval of the differences excludes 0; a single seed has no interval."""
        return self.over.interval is not None and not self.over.interval[0] <= 0 <= self.over.interval[1]

    @property
    def wanting(self) -> int:
        """Return the number of further seeds that would show a difference; 0 if none would, or if signs differ.

        The further seeds are assumed to have the mean and the deviation of the present ones.
        """
        over, one_way = self.over, self.over.least > 0 or self.over.most < 0
        if self.differs or not one_way or over.deviation is None or over.count < SAME_SIGN:
            return 0
        reach = over.deviation / abs(over.mean)
        counts = range(over.count + 1, MAX_SEEDS + 1)
        enough = (n for n in counts if student_t(LEVEL, n - 1) * reach < math.sqrt(n))
        return next(enough, over.count) - over.count


def over_seeds(values: Sequence[float], level: float = LEVEL) -> OverSeeds:
    """Return mean, sample deviation and interval of at least one value; NaN if one of them is not a number."""
    if not values:
        raise ValueError("values: found none; wanted at least one")
    if not all(map(is_number, values)):
        return OverSeeds(len(values), math.nan, None, min(values), max(values), None)
    mean, least, most = math.fsum(values) / len(values), min(values), max(values)
    if len(values) < MIN_RUNS:
        return OverSeeds(1, mean, None, least, most, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    reach = student_t(level, len(values) - 1) * deviation / math.sqrt(len(values))
    return OverSeeds(len(values), mean, deviation, least, most, (mean - reach, mean + reach))


def paired(first: Mapping[int, float], second: Mapping[int, float], level: float = LEVEL) -> PairedSeeds:
    differences = {seed: second[seed] - first[seed] for seed in sorted(first.keys() & second.keys())}
    return PairedSeeds(differences, over_seeds(list(differences.values()), level))


def student_t(level: float, freedom: int) -> float:
    """Return the t for which Student's distribution has the probability `level` between -t and t."""
    if not 0 <= level < 1 or freedom < 1:
        raise ValueError(f"level, freedom: found {level:g} and {freedom}; wanted 0 to below 1, and 1 or more")
    low, high = 0.0, math.pi / 2  # limits of the angle whose tangent is t / sqrt(freedom)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _share_within(middle, freedom) < level else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def within_t(t: float, freedom: int) -> float:
    """Return the probability between -t and t of Student's distribution with `freedom` degrees of freedom."""
    return _share_within(math.atan(t / math.sqrt(freedom)), freedom)


def _share_within(angle: float, freedom: int) -> float:
    """Compute the distribution as a finite sum (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    square = math.cos(angle) ** 2
    odd = freedom % 2
    term = total = math.cos(angle) * (freedom > 1) if odd else 1.0
    for n in range(2 + odd, freedom - 1, 2):
        term *= square * (n - 1) / n
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def is_number(value: object) -> bool:
    """Return whether a value is a number below INFINITE."""
    return isinstance(value, int | float) and abs(value) < INFINITE
