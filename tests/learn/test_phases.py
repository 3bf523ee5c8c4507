"""Phases: where a step of the run stands, and its rate."""

from __future__ import annotations

import itertools

import pytest

from ordsmed.learn.phases import Phase, locate, total
from ordsmed.learn.schedules import Schedule

ONE = Phase(steps=3, length=128, batch=8, rate=2.0, warmup=2)
TWO = Phase(steps=2, length=512, batch=4, rate=1.0, schedule=Schedule("constant"))


def test_every_step_has_its_place() -> None:
    assert [locate((ONE, TWO), step) for step in range(7)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 0)]
    assert total((ONE, TWO)) == 5
    assert (total(()), locate((), 0)) == (0, (0, 0))
    assert ONE.rows == 24


def test_the_rate_begins_anew() -> None:
    rates = [phase.rate_at(inner) for phase in (ONE, TWO) for inner in range(phase.steps)]
    assert rates == [1.0, 2.0, 2.0, 1.0, 1.0]
    again = Phase(steps=3, length=512, batch=8, rate=2.0, warmup=2)
    assert [again.rate_at(s) for s in range(3)] == rates[:3]


def test_going_on_inside_a_phase_finds_the_same_steps() -> None:
    whole = [locate((ONE, TWO), step) for step in range(5)]
    for first in range(5):
        index, inner = locate((ONE, TWO), first)
        later = itertools.chain.from_iterable(
            ((i, s) for s in range(inner if i == index else 0, p.steps)) for i, p in list(enumerate((ONE, TWO)))[index:]
        )
        assert list(later) == whole[first:]


@pytest.mark.parametrize("warmup", [0, 0.5, 1, 3])
def test_warmups_that_can_be(warmup: float) -> None:
    assert Phase(steps=3, length=8, batch=1, rate=1.0, warmup=warmup).rate_at(2) > 0


def test_epochs_stand_in_place_of_steps() -> None:
    """One of the two; until the data are counted, a warm-up may have any length."""
    assert Phase(epochs=2.5, length=8, batch=1, rate=1.0, warmup=50).steps == 0
    for wrong, said in (
        ({}, "steps: found 0; wanted 1 or more, or epochs above 0"),
        ({"steps": -3}, "steps: found -3"),
        ({"epochs": -1.0}, "steps: found 0; wanted 1 or more, or epochs above 0"),
        ({"epochs": 2.0, "steps": 5}, "epochs: found 2 beside 5 steps; wanted one of the two"),
    ):
        with pytest.raises(ValueError, match=said):
            Phase(length=8, batch=1, rate=1.0, **wrong)  # type: ignore[arg-type]
