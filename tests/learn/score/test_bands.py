"""Bands over seeds: every run counts once in each stretch of steps, whatever it logged there."""

from __future__ import annotations

import math
import random

import pytest

from ordsmed.learn.score.bands import bands


def test_each_step_is_a_stretch_where_there_are_few() -> None:
    found = bands([[(1, 3.0), (2, 2.0)], [(1, 5.0), (2, 2.5)]])
    assert [(one.step, one.over.mean, one.over.least, one.over.most) for one in found] == [
        (1.0, 4.0, 3.0, 5.0),
        (2.0, 2.25, 2.0, 2.5),
    ]
    assert found[0].over.deviation == pytest.approx(math.sqrt(2))


def test_a_run_counts_once_however_often_it_was_logged() -> None:
    """The mean of runs' means, not of lines."""
    (found,) = bands([[(1, 1.0), (2, 1.0), (3, 1.0)], [(2, 3.0)]], most=1)
    assert (found.over.mean, found.over.count) == (2.0, 2)
    assert found.step == 2.0


def test_a_run_that_ended_early_leaves_the_rest_to_others() -> None:
    found = bands([[(1, 1.0), (2, 1.0)], [(1, 3.0)], [(1, math.nan), (2, 1e300)]])
    assert [one.over.count for one in found] == [2, 1]
    assert found[1].over.deviation is None


def test_long_courses_become_few_stretches_in_any_order_of_runs() -> None:
    draw = random.Random(1)
    courses = [[(step, draw.random()) for step in range(0, 10_000, 10)] for _ in range(3)]
    found = bands(courses, most=50)
    assert len(found) == 50
    assert [one.step for one in found] == sorted(one.step for one in found)
    assert bands(courses[::-1], most=50) == found
    assert all(one.over.least <= one.over.mean <= one.over.most for one in found)


@pytest.mark.parametrize("courses", [[], [[]], [[(1, math.nan)]]])
def test_nothing_has_no_band(courses: list[list[tuple[int, float]]]) -> None:
    assert bands(courses) == []
