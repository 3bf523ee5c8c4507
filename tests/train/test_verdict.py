"""Verdicts on the losses of a pretraining."""

from __future__ import annotations

import math

import pytest

from ordsmed.train.verdict import verdict

FALLING = [(step, 5 - step / 100) for step in range(1, 101)]
RISING = [(step, 4 + step / 100) for step in range(1, 101)]
FLAT = {20: 5.0, 40: 4.5, 60: 4.1, 80: 4.0, 100: 3.99}


@pytest.mark.parametrize(
    ("validations", "training", "wanted"),
    [
        ({**FLAT, 100: 3.9}, FALLING, "still falling: the validation loss is 3.9 at step 100, and more steps"),
        (FLAT, FALLING, "converged: the validation loss is 3.99 at step 100, and fell by less than 0.5%"),
        ({**FLAT, 100: 4.1}, FALLING, "overfitting: the validation loss rose, from 4 at step 80 to 4.1 at step 100"),
        (
            {**FLAT, 90: 3.89, 100: 3.9},
            FALLING,
            "still falling: the validation loss is 3.9 at step 100, and more steps "
            "would lower it further; the lowest is 3.89 at step 90",
        ),
        (
            {**FLAT, 100: 4.01},
            FALLING,
            "converged: the validation loss is 4.01 at step 100, and fell by less than 0.5% in "
            "the last fifth of the steps; the lowest is 4 at step 80",
        ),
        ({**FLAT, 100: 4.1}, RISING, "diverged: training and validation losses rose, from 4 at step 80 to 4.1"),
        ({**FLAT, 100: math.nan}, FALLING, "diverged: the validation loss of step 100 is not a finite number"),
        ({100: math.inf}, FALLING, "diverged: the validation loss of step 100 is not a finite number"),
        ({50: 4.0, 100: 4.1}, FALLING, "no verdict: it needs 3 or more validations"),
    ],
)
def test_the_rule(validations: dict[int, float], training: list[tuple[float, float]], wanted: str) -> None:
    found = verdict(validations, training)
    assert found
    assert found.line.startswith(wanted)


def test_what_is_said_of_the_weights() -> None:
    losses = {**FLAT, 100: 4.1}
    lines = [verdict(losses, FALLING, kept=kept).line.partition("step 100")[2] for kept in (0, 80, 100)]  # type: ignore[union-attr]
    assert lines[:2] == ["", "; the weights of step 80 are used and exported"]
    assert lines[2].startswith("; the weights of step 100 are used, those of step 80 were not kept")
    falling = {**FLAT, 90: 3.89, 100: 3.9}
    found = [verdict(falling, FALLING, kept=kept) for kept in (0, 90, 100)]
    assert [line and line.line.endswith("step 90 are used and exported") for line in found] == [False, True, False]


def test_nothing_is_judged_without_validations_that_can_be_compared() -> None:
    assert verdict({}, FALLING) is None
    assert verdict(FLAT, FALLING, comparable=False).kind == "unknown"  # type: ignore[union-attr]
