"""Schedules: the rate of every step, by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base import settings
from ordsmed.learn.schedules import Ramp, Schedule, at, ends, factor, warmup_steps

HALF = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        (Schedule("constant"), [1, 1, 1, 1]),
        (Schedule("linear"), [1, 0.75, 0.5, 0.25]),
        (Schedule("linear", end=0.2), [1, 0.8, 0.6, 0.4]),
        (Schedule("polynomial", power=2), [1, 0.5625, 0.25, 0.0625]),
        (Schedule("polynomial", power=0.5), [1, math.sqrt(0.75), HALF, 0.5]),
        (Schedule("cosine"), [1, (1 + HALF) / 2, 0.5, (1 - HALF) / 2]),
        (Schedule("cosine", end=0.1), [1, 0.1 + 0.9 * (1 + HALF) / 2, 0.55, 0.1 + 0.9 * (1 - HALF) / 2]),
        (Schedule("wsd", decay=0.5), [1, 1, 1, 0.5]),
        (Schedule("wsd", decay=0.5, shape="sqrt"), [1, 1, 1, 1 - HALF]),
        (Schedule("wsd", decay=1.0), [1, 0.75, 0.5, 0.25]),
        (Schedule("wsd", decay=0.5, end=0.5), [1, 1, 1, 0.75]),
    ],
)
def test_after_the_warmup(schedule: Schedule, wanted: list[float]) -> None:
    assert [factor(schedule, s, 4, 0) for s in range(4)] == pytest.approx(wanted)
    after = [factor(schedule, s, 9, 5) for s in range(5, 9)]
    assert after == pytest.approx(wanted), "the course begins where the warm-up ends"
    assert factor(schedule, 4, 4, 0) == pytest.approx(1 if schedule.kind == "constant" else schedule.end)


def test_warmup_in_steps_and_as_a_share() -> None:
    assert [factor(Schedule("constant"), s, 10, 4) for s in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [factor(Schedule("constant"), s, 10, 0.4) for s in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert [warmup_steps(w, 100) for w in (0, 0.06, 0.999, 1, 1.0, 40, 100)] == [0, 6, 100, 1, 1, 40, 100]
    assert factor(Schedule("linear"), 0, 10, 1) == 1.0
    assert [factor(Schedule("linear"), s, 3, 3) for s in range(3)] == pytest.approx([1 / 3, 2 / 3, 1])


kinds = st.sampled_from(["constant", "linear", "polynomial", "cosine", "wsd", "inverse_sqrt"])


@given(
    kinds, st.integers(1, 500), st.floats(0, 1), st.floats(0, 1), st.floats(0.2, 4), st.sampled_from(["linear", "sqrt"])
)
def test_up_then_down_between_the_ends(
    kind: str, steps: int, warmup: float, end: float, power: float, shape: str
) -> None:
    schedule = Schedule(kind, power=power, end=end, shape=shape)  # type: ignore[arg-type]
    warmup = int(warmup * steps)
    course = [factor(schedule, s, steps, warmup) for s in range(steps)]
    assert all(0 <= f <= 1 + 1e-12 for f in course)
    assert course[:warmup] == pytest.approx([(s + 1) / warmup for s in range(warmup)])
    after = course[warmup:]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(after))
    assert all(f >= end - 1e-12 for f in after)
    assert not after or after[0] == 1


@pytest.mark.parametrize(
    ("since", "wanted"),
    [
        ("warmup", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),  # down from the warm-up's end
        ("jump", [0.5, 1.0, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),  # as if it had gone down from the first step
        ("start", [0.5, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),  # and it had, the warm-up's factor on top
    ],
)
def test_where_the_way_down_begins(since: str, wanted: list[float]) -> None:
    schedule = Schedule("linear", since=since)  # type: ignore[arg-type]
    assert [factor(schedule, step, 6, 2) for step in range(6)] == pytest.approx(wanted)


def test_the_last_step_of_a_phase_that_is_all_warm_up_is_its_peak() -> None:
    assert [factor(Schedule("linear"), step, 2, 2) for step in range(3)] == [0.5, 1.0, 1.0]
    assert factor(Schedule("linear"), 3, 2, 2) == 0.0, "and behind its end nothing is left"


def test_what_is_not_said_is_linear_to_0_and_a_fifth_of_wsd() -> None:
    usual = {"power": 1.0, "end": 0.0, "decay": 0.2, "shape": "linear", "since": "warmup", "over": 0}
    assert Schedule() == Schedule("linear", **usual)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"end": 1.1}, "end: found 1.1"),
        ({"end": -0.1}, "end: found -0.1"),
        ({"power": 0.0}, "power: found 0.0"),
        ({"power": math.inf}, "power: found inf"),
        ({"decay": 0.0}, "decay: found 0.0"),
        ({"decay": 1.1}, "decay: found 1.1"),
        ({"over": -1}, "over: found -1; wanted a number of steps, or 0 for"),
        ({"kind": "cosine", "cycles": -1.0}, "cycles: found -1.0"),
        ({"kind": "cosine", "cycles": math.inf}, "cycles: found inf"),
        ({"kind": "linear", "cycles": 1.0}, "cycles: found 1 with kind linear; wanted a cosine"),
        ({"kind": "wsd", "cycles": 1.0}, "cycles: found 1 with kind wsd; wanted a cosine"),
    ],
)
def test_schedules_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schedule(**wrong)  # type: ignore[arg-type]
    assert Schedule(end=1.0, decay=1.0).end == 1.0


def test_a_ramp_goes_from_its_start_to_its_end() -> None:
    ramp, done = Ramp(0.3, 0.15), np.array([0.0, 0.5, 1.0])
    assert ramp.at(done).tolist() == pytest.approx([0.3, 0.225, 0.15])
    assert at(ramp, done).tolist() == pytest.approx([0.3, 0.225, 0.15])
    assert at(0.2, done).tolist() == [0.2, 0.2, 0.2]
    assert (ends(ramp), ends(Ramp(0.1, 0.4)), ends(0.2)) == ((0.15, 0.3), (0.1, 0.4), (0.2, 0.2))


def test_a_course_of_its_own_length_is_cut_off_or_has_ended() -> None:
    long, short = Schedule("linear", end=0.2, over=8), Schedule("linear", end=0.2, over=2)
    assert [factor(long, step, 4, 0) for step in range(4)] == pytest.approx([1, 0.9, 0.8, 0.7])
    assert [factor(short, step, 4, 0) for step in range(4)] == pytest.approx([1, 0.6, 0.2, 0.2])
    assert [factor(long, step, 4, 4) for step in range(6)] == pytest.approx([0.25, 0.5, 0.75, 1, 1, 0.8])
    jump = Schedule("linear", since="jump", over=8)
    assert [factor(jump, step, 4, 2) for step in range(4)] == pytest.approx([0.5, 1, 6 / 8, 5 / 8])
    wsd = Schedule("wsd", decay=0.5, over=8)
    assert [factor(wsd, step, 6, 0) for step in range(6)] == pytest.approx([1, 1, 1, 1, 1, 0.75])
    assert (long.span(4), Schedule().span(4)) == (8, 4)
    course = [factor(Schedule("cosine", over=9), step, 9, 3) for step in range(9)]
    assert course == [factor(Schedule("cosine"), step, 9, 3) for step in range(9)]


def test_one_over_the_root_of_steps() -> None:
    root = Schedule("inverse_sqrt")
    assert [factor(root, step, 20, 4) for step in (0, 3, 4, 5, 12)] == pytest.approx(
        [0.25, 1, 1, math.sqrt(4 / 5), math.sqrt(4 / 12)]
    )
    assert factor(Schedule("inverse_sqrt", end=0.5), 12, 20, 4) == pytest.approx(0.5 + 0.5 * math.sqrt(1 / 3))
    assert factor(root, 10_000, 20_000, 0) == pytest.approx(HALF)


def test_a_warmup_is_a_share_of_the_whole_course() -> None:
    assert [factor(Schedule("constant", over=8), step, 4, 0.5) for step in range(4)] == [0.25, 0.5, 0.75, 1]


def test_folders_from_before_courses_had_lengths_fit() -> None:
    assert "over" not in settings.plain(Schedule(), essence=True)
    assert settings.plain(Schedule(over=7), essence=True)["over"] == 7
