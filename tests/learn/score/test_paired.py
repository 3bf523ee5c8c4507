"""Differences of two models: errors over kinds of examples, and exact tests of pairs, by hand and as scipy has them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from ordsmed.learn.score.paired_tests import Clustered, clustered, holm, sign_test


def test_an_error_by_hand() -> None:
    """Two groups of two: residuals sum to 1 and -1, so sqrt((1 + 1) * 2) / 4."""
    found = clustered([1, 1, 0, 0], [1] * 4, ["a", "a", "b", "b"])
    assert (found.mean, found.groups) == (0.5, 2)
    assert found.error == pytest.approx(math.sqrt(2 * 2) / 4)
    assert found.interval == pytest.approx((0.5 - 12.706205 * 0.5, 0.5 + 12.706205 * 0.5), rel=1e-6)
    assert found.p == pytest.approx(0.5)  # Student's t of one degree of freedom at 1


def test_examples_by_themselves_have_the_usual_error() -> None:
    values = [random.Random(n).random() for n in range(50)]
    found = clustered(values, [1.0] * 50, [""] * 50)
    assert found.groups == 50
    assert found.error == pytest.approx(np.std(values, ddof=1) / math.sqrt(50))


def test_twice_the_same_examples_say_no_more() -> None:
    """Each example and its copy are a group: the same mean, the same error; by themselves they would claim less."""
    values = [random.Random(n).random() for n in range(40)]
    groups = [str(n) for n in range(40)]
    once, twice = clustered(values, [1] * 40, groups), clustered(values * 2, [1] * 80, groups * 2)
    assert twice.mean == pytest.approx(once.mean)
    assert twice.error == pytest.approx(once.error)
    assert clustered(values * 2, [1] * 80, [""] * 80).error < 0.75 * once.error


def test_a_ratio_has_the_error_of_windows_drawn_again() -> None:
    chance = np.random.default_rng(1)
    weights = chance.integers(5, 40, 300)
    sums = weights * 2 + chance.normal(0, 3, 300)
    found = clustered(sums.tolist(), weights.tolist(), [""] * 300)
    drawn = [chance.integers(300, size=300) for _ in range(2_000)]
    assert found.mean == pytest.approx(sums.sum() / weights.sum())
    assert found.error == pytest.approx(np.std([sums[one].sum() / weights[one].sum() for one in drawn]), rel=0.1)


def test_chances_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = [random.Random(n).gauss(0.3, 1) for n in range(12)]
    found, theirs = clustered(values, [1] * 12, [""] * 12), stats.ttest_1samp(values, 0)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-6)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)), rel=1e-6)
    for more, less in ((0, 0), (1, 0), (5, 5), (9, 1), (30, 12), (400, 340)):
        wanted = stats.binomtest(more, more + less, 0.5).pvalue if more + less else 1.0
        assert sign_test(more, less) == pytest.approx(wanted)
        assert sign_test(less, more) == sign_test(more, less)


def test_a_test_of_very_many_pairs_ends() -> None:
    near = math.erfc((600 - 1) / math.sqrt(2 * 60_600))
    assert sign_test(30_600, 30_000) == pytest.approx(near, rel=1e-3)


def test_one_group_has_no_error() -> None:
    found = clustered([1, 0, 1], [1] * 3, ["a"] * 3)
    assert found.mean == pytest.approx(2 / 3)
    assert math.isnan(found.error)
    assert math.isnan(found.p)
    assert all(map(math.isnan, found.interval))


def test_who_never_differs() -> None:
    assert clustered([0.0] * 5, [1] * 5, [""] * 5).p == 1.0
    assert Clustered(1.0, 0.0, 5).p == 0.0


def test_what_chance_never_does_is_not_less_than_never() -> None:
    assert min(Clustered(mean, 0.004, groups).p for mean in (0.2, 0.3, 0.4) for groups in range(50, 150)) == 0.0


def test_many_groups_are_as_good_as_endless() -> None:
    assert Clustered(1.0, 0.5, 33_000).interval == pytest.approx((1 - 1.96 * 0.5, 1 + 1.96 * 0.5), abs=2e-3)


def test_holms_steps() -> None:
    """The least times three, the next times two, none less than the one before; in the order they came."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
