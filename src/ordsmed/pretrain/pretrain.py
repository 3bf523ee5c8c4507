"""The verb `pretrain`: train a network on encoded text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.train.session import SessionOptions, perform


def pretrain(name: str, overrides: Sequence[str] = (), **how: Unpack[SessionOptions]) -> Path:
    """Start the run a recipe describes, or go on with one that a folder holds; every process of a launch calls this.

    `how` as in session.perform.
    """
    return perform(PretrainingPlan, name, overrides, **how)
