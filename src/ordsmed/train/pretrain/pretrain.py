"""The verb `pretrain`: train a network on encoded text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.train import session
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.session import SessionOptions
from ordsmed.train.training import Training


def pretrain(name: str, overrides: Sequence[str] = (), **how: Unpack[SessionOptions]) -> Path:
    """Start the run a recipe describes, or go on with one that a folder holds; every process of a launch calls this.

    `how` as in session.run_session.
    """
    return session.run_session(PretrainingPlan, name, overrides, **how)


def rehearse(
    name: str, overrides: Sequence[str] = (), *, devices: int = 0, **how: Unpack[SessionOptions]
) -> tuple[Training, list[str]]:
    """The recipe that `pretrain` would train by, and its plan in lines; what that refuses is refused, nothing made."""
    plan = session.rehearse(PretrainingPlan, name, overrides, devices=devices, **how)
    return plan.recipe, plan.lines()
