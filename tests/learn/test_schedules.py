"""Schedules: the rate of every step, by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.learn.schedules import Schedule, factor, warmup_steps

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


kinds = st.sampled_from(["constant", "linear", "polynomial", "cosine", "wsd"])


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
