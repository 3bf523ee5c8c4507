"""Statistics over seeds: the mission's published tables, Student's t, and what no order or shift of seeds changes."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.learn.score import seeds

PUBLISHED = {  # NVIDIA's five seeds; their deviations are partly cut off: 0.015, 0.17, 0.14, 0.15, 0.15
    "loss": ([8.72, 8.69, 8.71, 8.70, 8.68], 8.70, 0.0158),
    "EM of 1.1": ([86.99, 86.81, 86.95, 87.10, 87.26], 87.02, 0.169),
    "F1 of 1.1": ([92.70, 92.66, 92.65, 92.61, 92.97], 92.72, 0.144),
    "EM of 2.0": ([83.00, 82.84, 83.11, 82.70, 82.94], 82.92, 0.156),
    "F1 of 2.0": ([85.63, 85.48, 85.69, 85.31, 85.57], 85.54, 0.148),
}
VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9)


@pytest.mark.parametrize(("values", "mean", "deviation"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_tables_come_out(values: list[float], mean: float, deviation: float) -> None:
    over = seeds.over_seeds(values)
    assert over.deviation is not None
    assert round(over.mean, 2) == mean
    assert float(f"{over.deviation:.3g}") == deviation
    assert (over.count, over.least, over.most) == (5, min(values), max(values))


@pytest.mark.parametrize(
    ("level", "freedom", "value"),
    [
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 3, 3.182),
        (0.95, 4, 2.776),
        (0.95, 9, 2.262),
        (0.95, 30, 2.042),
        (0.9, 4, 2.132),
        (0.99, 5, 4.032),
        (0.5, 1, 1.0),
        (0.0, 7, 0.0),
    ],
)
def test_students_t_is_that_of_printed_tables(level: float, freedom: int, value: float) -> None:
    assert seeds.student_t(level, freedom) == pytest.approx(value, abs=6e-4)


def test_students_t_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 3, 4, 5, 6, 7, 30, 101):
        assert seeds.student_t(0.95, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_the_interval_is_the_mean_and_t_standard_errors() -> None:
    over = seeds.over_seeds([1.0, 2.0, 3.0, 4.0])
    reach = 3.182446 * math.sqrt(5 / 3) / 2
    assert over.interval == pytest.approx((2.5 - reach, 2.5 + reach))


@given(VALUES, st.randoms())
def test_no_order_of_seeds_changes_a_bit(values: list[float], draw: object) -> None:
    other = list(values)
    draw.shuffle(other)  # type: ignore[attr-defined]
    assert seeds.over_seeds(other) == seeds.over_seeds(values)


@given(VALUES)
def test_deviations_are_those_of_samples(values: list[float]) -> None:
    over = seeds.over_seeds(values)
    assert over.deviation == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)
    assert over.interval is not None
    assert over.interval[0] <= over.mean <= over.interval[1]


@given(st.dictionaries(st.integers(0, 9), st.floats(-1e6, 1e6), min_size=1), st.floats(-1e3, 1e3))
def test_one_recipe_twice_differs_by_nothing_and_the_other_way_round_by_the_opposite(
    values: dict[int, float], shift: float
) -> None:
    assert not seeds.paired(values, values).differs
    other = {seed: value * 0.5 + shift for seed, value in values.items()}
    there, back = seeds.paired(values, other), seeds.paired(other, values)
    assert there.over.mean == -back.over.mean
    assert there.differs == back.differs


def test_one_seed_has_no_deviation() -> None:
    over = seeds.over_seeds([0.5])
    assert (over.count, over.mean, over.deviation, over.interval) == (1, 0.5, None, None)
    with pytest.raises(ValueError, match="values"):
        seeds.over_seeds([])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_no_number_leaves_no_mean(bad: float) -> None:
    over = seeds.over_seeds([1.0, bad])
    assert math.isnan(over.mean)
    assert over.deviation is over.interval is None
    assert not seeds.is_number(bad)
    assert not seeds.is_number(None)
    assert seeds.is_number(-8.5)


def test_seeds_in_common_are_compared() -> None:
    """By seed the second is lower throughout, though the two overlap: pairs show what means of each do not."""
    first, second = {1: 3.0, 2: 5.0, 3: 7.0, 8: 0.0}, {3: 6.5, 1: 2.6, 2: 4.4, 9: 99.0}
    found = seeds.paired(first, second)
    assert found.differences == pytest.approx({1: -0.4, 2: -0.6, 3: -0.5})
    assert list(found.differences) == [1, 2, 3]
    assert found.over.mean == pytest.approx(-0.5)
    assert found.over.interval == pytest.approx((-0.5 - 4.302653 * 0.1 / math.sqrt(3), -0.5 + 0.2484138))
    assert found.differs
    assert not seeds.paired({1: 3.0, 2: 5.0}, {1: 2.6, 2: 5.3}).differs
    assert not seeds.paired({1: 3.0}, {1: 2.0}).differs, "one pair shows nothing"
    assert seeds.paired({1: 3.0, 2: 4.0}, {1: 2.0, 2: 3.0}).differs, "the same at every seed"
    with pytest.raises(ValueError, match="values"):
        seeds.paired({1: 3.0}, {2: 3.0})


@pytest.mark.parametrize(("level", "freedom"), [(1.0, 3), (-0.1, 3), (0.95, 0)])
def test_what_has_no_quantile(level: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="level"):
        seeds.student_t(level, freedom)


@pytest.mark.parametrize(
    ("differences", "wanting"),
    [
        ([1.0, 2.0, 3.0], 1),  # t(0.95, 3) / sqrt(4) = 1.59 deviations of 1 are less than the mean of 2
        ([0.5, 1.0, 4.0], 4),
        ([0.01, 0.02, 3.0], 11),
        ([-1.0, -2.0, -3.0], 1),
        ([1.0, 1.1, 1.2], 0),  # a difference is shown
        ([1.0, -2.0, 3.0], 0),  # they do not point one way
        ([1.0, 3.0], 0),
        ([0.0, 1.0, 2.0], 0),
    ],
)
def test_how_many_more_seeds_would_decide(differences: list[float], wanting: int) -> None:
    """With as many more the interval of the same mean and deviation does not hold 0; with one less it does."""
    pairs = seeds.paired(dict.fromkeys(range(len(differences)), 0.0), dict(enumerate(differences)))
    assert pairs.wanting == wanting
    if wanting:
        reaches = [
            seeds.student_t(0.95, count - 1) * (pairs.over.deviation or 0.0) / math.sqrt(count)
            for count in (len(differences) + wanting - 1, len(differences) + wanting)
        ]
        assert reaches[0] >= abs(pairs.over.mean) > reaches[1]
