"""Processes of a measurement: like those of a training, without its folder, lock and watch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TypeVar

from ordsmed.base.ranks import disconnect, join, prepare
from ordsmed.train.plan import Plan
from ordsmed.train.precision_trial import with_fastest_precision
from ordsmed.train.training import Training

P = TypeVar("P", bound=Plan)


@contextlib.contextmanager
def met(kind: type[P], training: Training) -> Iterator[P]:
    """Yield the plan of a training after its data are prepared and its processes have connected."""
    layout = training.layout
    alone = prepare(layout.device, layout.threads or None)
    shape = layout.shape(alone.world)
    plan = kind.of(training, dataclasses.replace(alone, shape=shape)).completed(make=True)
    ranks = join(plan.ranks, shape, layout.patience)
    try:
        yield with_fastest_precision(plan.on(ranks))
    except BaseException:
        disconnect(ranks, well=False)
        raise
    disconnect(ranks)
