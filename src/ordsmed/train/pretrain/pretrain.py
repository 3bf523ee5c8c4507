"""The verb `pretrain`: train a network on encoded text, or several of one recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.train import trials
from ordsmed.train.pretrain.trials import PretrainingTrials
from ordsmed.train.request import SessionOptions
from ordsmed.train.training import Training


def pretrain(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **options: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `part`, for trials: 2/8 is the second eighth of them.
    """
    return trials.train(PretrainingTrials, name, overrides, part, **options)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **options: Unpack[SessionOptions],
) -> tuple[Training, list[str]]:
    """Return the recipe that `pretrain` would train by and its plan as lines; raise its errors, and make nothing."""
    return trials.rehearse(PretrainingTrials, name, overrides, part, devices, **options)
