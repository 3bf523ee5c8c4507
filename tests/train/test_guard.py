"""The guard's eye for trouble: what is no number, and what jumps above the mean of a full window of good steps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ordsmed.train.guard import Guard, LossHistory, count_skipped, remedy


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_trouble(bad: float) -> None:
    """Of the loss and of the gradient's norm, each by itself, with and without an eye for jumps."""
    for spike in (0.0, 3.0):
        course = LossHistory(Guard(spike=spike, window=2))
        assert course.trouble(1.0, 1.0) == ""
        assert course.trouble(bad, 1.0) == f"loss {bad:g}, gradient norm 1"
        assert course.trouble(1.0, bad) == f"loss 1, gradient norm {bad:g}"
        assert list(course.losses) == [1.0], "trouble is no part of the course"


def test_a_jump_is_known_by_a_full_window_alone() -> None:
    course = LossHistory(Guard(spike=2.0, window=3))
    assert [course.trouble(loss, 1.0) for loss in (1.0, 100.0, 1.0)] == ["", "", ""]
    course = LossHistory(Guard(spike=2.0, window=3), (1.0, 2.0))
    assert course.trouble(3.0, 1.0) == ""  # the third of three
    assert course.trouble(4.0, 1.0) == ""  # twice the mean of 2, and no more
    assert course.trouble(6.1, 1.0) == "loss 6.1, 2.03 times the mean of 3 steps"


def test_a_jump_does_not_raise_the_mean_it_is_known_by() -> None:
    course = LossHistory(Guard(spike=2.0, window=2), (1.0, 1.0))
    assert all(course.trouble(loss, 1.0) for loss in (3.0, 3.0, 3.0, 2.1))
    assert list(course.losses) == [1.0, 1.0]
    assert course.trouble(1.5, 1.0) == ""
    assert list(course.losses) == [1.0, 1.5], "the window moves on"


def test_without_a_spike_no_jump_is_trouble() -> None:
    course = LossHistory(Guard(window=1), (1.0,))
    assert course.trouble(1e9, 1e9) == ""


def test_every_step_is_looked_at_where_something_would_be_done() -> None:
    watched = [Guard(), Guard("skip"), Guard("rewind"), Guard("stop", spike=2.0)]
    assert [guard.watches for guard in watched] == [False, True, True, True]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"spike": 1.0}, "spike: found 1.0; wanted more than 1"),
        ({"spike": math.inf}, "spike: found inf"),
        ({"spike": -2.0}, "spike: found -2.0"),
        ({"window": 0}, "window: found 0; wanted 1 or more"),
        ({"most": 0}, "most: found 0; wanted 1 or more"),
    ],
)
def test_guards_that_cannot_be(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Guard(**wrong)  # type: ignore[arg-type]
    assert Guard(spike=1.01, window=1, most=1).spike == 1.01


@pytest.mark.parametrize(
    ("stretches", "wanted"),
    [
        ([], 0),
        ([(3, 3)], 1),
        ([(3, 5), (7, 7)], 4),
        ([(3, 9), (5, 7)], 7),
        ([(5, 7), (3, 6)], 5),
        ([(3, 5), (6, 8)], 6),
    ],
)
def test_steps_that_taught_nothing_count_once(stretches: list[tuple[int, int]], wanted: int) -> None:
    assert count_skipped({"first": first, "last": last} for first, last in stretches) == wanted


def test_what_is_advised_hangs_on_what_stands(tmp_path: Path) -> None:
    none, some = (remedy(tmp_path, "pretrain", Guard(), step) for step in (None, 0))
    assert none.startswith("no checkpoint is complete: `")
    assert "resumes from the start and skips" in none
    assert some.startswith("the last complete one is of step 0: `")
    assert "resumes from there and skips" in some
    rewound = remedy(tmp_path, "pretrain", Guard("rewind"), 5)
    assert rewound.startswith("the last complete one is of step 5; ")
    assert "trouble.action=rewind" not in rewound


def test_stretches_that_hold_one_another_count_once() -> None:
    """A short one inside a long one, and a third that the long one still covers."""
    stretches = ({"first": first, "last": last} for first, last in ((3, 20), (5, 6), (10, 12), (19, 22)))
    assert count_skipped(stretches) == 20


def test_a_run_that_skips_is_advised_to_go_back(tmp_path: Path) -> None:
    assert "trouble.action=rewind" in remedy(tmp_path, "pretrain", Guard("skip"), 5)
