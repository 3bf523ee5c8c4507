"""Phases: the phase of a step of the run, and its learning rate."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ordsmed.base import settings
from ordsmed.learn.phases import OVER, BatchRamp, Phase, Stretch, locate, steps_of_rows, total
from ordsmed.learn.schedules import Schedule

ONE = Phase(steps=3, length=128, batch=8, learning_rate=2.0, warmup=2)
TWO = Phase(steps=2, length=512, batch=4, learning_rate=1.0, schedule=Schedule("constant"))


def test_every_step_has_its_place() -> None:
    assert [locate((ONE, TWO), step) for step in range(7)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 0)]
    assert total((ONE, TWO)) == 5
    assert (total(()), locate((), 0)) == (0, (0, 0))
    assert ONE.rows == 24


def test_the_rate_begins_anew() -> None:
    rates = [phase.rate_at(inner) for phase in (ONE, TWO) for inner in range(phase.steps)]
    assert rates == [1.0, 2.0, 2.0, 1.0, 1.0]
    again = Phase(steps=3, length=512, batch=8, learning_rate=2.0, warmup=2)
    assert [again.rate_at(s) for s in range(3)] == rates[:3]


def test_going_on_inside_a_phase_finds_the_same_steps() -> None:
    whole = [locate((ONE, TWO), step) for step in range(5)]
    for first in range(5):
        index, inner = locate((ONE, TWO), first)
        later = itertools.chain.from_iterable(
            ((i, s) for s in range(inner if i == index else 0, p.steps)) for i, p in list(enumerate((ONE, TWO)))[index:]
        )
        assert list(later) == whole[first:]


def ramped(steps: int = 40, **how: float) -> Phase:
    ramp = BatchRamp(**{"start": 2, **how})  # type: ignore[arg-type]
    return Phase(steps=steps, length=16, batch=8, learning_rate=1.0, batch_ramp=ramp)


@pytest.mark.parametrize(
    ("how", "steps"),
    [({}, 30), ({"over": 0.5}, 20), ({"over": 12}, 12), ({"over": 1.0}, 1), ({"over": 0.001}, 1), ({"by": 3}, 27)],
)
def test_a_batch_grows_over_so_many_steps(how: dict[str, float], steps: int) -> None:
    phase = ramped(**how)
    sizes = [phase.rows_of(step)[1] for step in range(40)]
    assert sizes[0] == 2
    assert sorted(sizes) == sizes
    assert sum(size < 8 for size in sizes) == steps
    assert phase.rows == sum(sizes) == 8 * phase.whole_steps
    assert all(size % phase.unit == 0 for size in sizes)
    assert phase.unit == (1 if "by" in how else 2)


def test_a_batch_may_start_whole() -> None:
    assert [ramped(start=8).rows_of(step) for step in (0, 1, 39)] == [(0, 8), (8, 8), (312, 8)]


def test_a_batch_that_is_counted_in_steps_grows_alike_in_a_longer_phase() -> None:
    phase = ramped(over=0.5).with_fixed_ramp()
    assert phase.batch_ramp == BatchRamp(start=2, over=20.0)
    for steps in (10, 30, 90):
        other = settings.decode(Phase, settings.plain(phase) | {"steps": steps}, "phase")
        assert [other.rows_of(step) for step in range(10)] == [phase.rows_of(step) for step in range(10)]
    assert ONE.with_fixed_ramp() is ONE


def test_steps_of_so_many_rows() -> None:
    for phase in (ramped(), ramped(over=0.3), ramped(over=25), ONE):
        for rows in (1, 50, 173, 4_000):
            steps = steps_of_rows(phase, rows)
            has = settings.decode(Phase, settings.plain(phase) | {"steps": steps, "warmup": 0.0}, "phase").rows
            assert abs(has - rows) <= phase.batch


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"start": 9}, "batch_ramp: found start 9, more than the batch of 8; wanted at most 8"),
        ({"start": 3}, "found start 3, from which steps of 3 do not reach 8; wanted `by` = 1, or another"),
        ({"by": 4}, "found start 2, from which steps of 4 do not reach 8; wanted `by` = 3, or another"),
        ({"start": 0}, "start: found 0"),
        ({"over": 1.5}, "over: found 1.5; wanted steps, 0 or more, or a share of the phase below 1"),
        ({"over": float("inf")}, "over: found inf"),
    ],
)
def test_batches_that_cannot_grow_so(how: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ramped(**how)


@pytest.mark.parametrize("warmup", [0, 0.5, 1, 3])
def test_warmups_that_can_be(warmup: float) -> None:
    assert Phase(steps=3, length=8, batch=1, learning_rate=1.0, warmup=warmup).rate_at(2) > 0


def test_epochs_stand_in_place_of_steps() -> None:
    """One of the two; until the data are counted, a warm-up may have any length."""
    assert Phase(epochs=2.5, length=8, batch=1, learning_rate=1.0, warmup=50).steps == 0
    for wrong, said in (
        ({}, "steps: found 0; wanted 1 or more, or epochs above 0"),
        ({"steps": -3}, "steps: found -3"),
        ({"epochs": -1.0}, "steps: found 0; wanted 1 or more, or epochs above 0"),
        (
            {"epochs": 2.0, "steps": 5},
            "epochs: found 2 and 5 steps; wanted one of the two; `phase.steps=0` removes the steps of a recipe",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            Phase(length=8, batch=1, learning_rate=1.0, **wrong)  # type: ignore[arg-type]


def test_epochs_end_at_most_steps() -> None:
    how = {"length": 8, "batch": 1, "learning_rate": 1.0}
    assert Phase(epochs=2.0, max_steps=9, warmup=50, **how).max_steps == 9  # type: ignore[arg-type]
    for wrong, said in (
        ({"steps": 4, "max_steps": 3}, "max_steps: found 3 and 4 steps; wanted .*`phase.max_steps=0` removes"),
        ({"epochs": 1.0, "max_steps": -1}, "max_steps: found -1; wanted 0 or more, with epochs"),
        ({"max_steps": 3}, "steps: found 0; wanted 1 or more, or epochs above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            Phase(**how, **wrong)  # type: ignore[arg-type]
    assert "max_steps" not in settings.plain(ONE, essence=True)


def test_a_stretch_goes_by_rows_not_by_steps() -> None:
    """24 rows, then 8: the first phase is three quarters of the run, though three fifths of its steps."""
    one, two = Stretch.of((ONE, TWO), 0), Stretch.of((ONE, TWO), 1)
    assert (one.start, one.end, one.rows, two.start, two.end, two.rows) == (0.0, 0.75, 24, 0.75, 1.0, 8)
    assert one.progress(np.array([0, 8, 24, 99])).tolist() == [0.0, 0.25, 0.75, 0.75]
    assert two.progress(np.array([0, 4, 8])).tolist() == [0.75, 0.875, 1.0]
    assert not one.validating
    assert OVER.validating
    assert OVER.progress(np.array([0, 1, 5])).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["length", "batch"])
def test_a_row_and_a_batch_hold_something(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: found 0; wanted 1 or more"):
        Phase(**{"steps": 1, "length": 1, "batch": 1, "learning_rate": 1.0, name: 0})  # type: ignore[arg-type]
    assert Phase(steps=1, length=1, batch=1, learning_rate=1.0, warmup=1).rate_at(0) == 1.0


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_rates_that_cannot_be(rate: float) -> None:
    with pytest.raises(ValueError, match="learning_rate: found"):
        Phase(steps=1, length=1, batch=1, learning_rate=rate)
    wanted = r"warmup: found 3; wanted at most the 2 steps of the phase, or a share of the phase, below 1$"
    with pytest.raises(ValueError, match=wanted):
        Phase(steps=2, length=1, batch=1, learning_rate=1.0, warmup=3.0)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"steps": 2**41, "length": 2**10, "batch": 2**10}, r"steps: found 2,199,023,255,552; wanted less"),
        ({"steps": 1, "length": 2**10, "batch": 2**51}, r"batch: found 2,251,799,813,685,248; wanted less"),
        ({"steps": 1, "length": 2**51, "batch": 2**10}, r"length: found 2,251,799,813,685,248; wanted less"),
        ({"steps": 5, "length": 2**10, "batch": 2**51}, r"batch: found .*; wanted less"),
        ({"epochs": 3.0, "length": 2**10, "batch": 2**51}, r"batch: .* less: a run cannot count this many tokens"),
    ],
)
def test_more_rows_than_a_run_counts(how: dict[str, int], said: str) -> None:
    """What is absurd is named: the steps where one would do, else the larger of the two."""
    with pytest.raises(ValueError, match=said):
        Phase(learning_rate=1.0, **how)  # type: ignore[arg-type]
    assert Phase(learning_rate=1.0, steps=2**40, length=2**10, batch=2**10).rows == 2**50


def test_a_warmup_of_all_steps_is_the_longest() -> None:
    assert Phase(steps=2, length=1, batch=1, learning_rate=1.0, warmup=2).rate_at(1) == 1.0
    for warmup in (-0.1, 2.5):
        with pytest.raises(ValueError, match="warmup: found"):
            Phase(steps=2, length=1, batch=1, learning_rate=1.0, warmup=warmup)
    with pytest.raises(ValueError, match="epochs above 0"):
        Phase(epochs=float("inf"), length=1, batch=1, learning_rate=1.0)


def test_a_warmup_is_of_the_course_which_may_be_longer_than_the_phase() -> None:
    how = {"length": 1, "batch": 1, "learning_rate": 2.0}
    phase = Phase(steps=2, warmup=4, schedule=Schedule(over=8), **how)  # type: ignore[arg-type]
    assert [phase.rate_at(step) for step in range(2)] == [0.5, 1.0]
    for steps in ({"steps": 9}, {"epochs": 2.0}):
        Phase(warmup=3, schedule=Schedule(over=3), **how, **steps)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="warmup: found 4; wanted at most the 3 steps of the schedule, or a share"):
            Phase(warmup=4, schedule=Schedule(over=3), **how, **steps)  # type: ignore[arg-type]
