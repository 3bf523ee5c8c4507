"""Prepare and connect the processes of a measurement, like a training but without its folder, lock and watch."""

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
def connected_plan(kind: type[P], training: Training) -> Iterator[P]:
    """Yield the plan of a training after its data are prepared and its processes have connected."""
    layout = training.layout
    unconnected = prepare(layout.device, layout.threads or None)
    shape = layout.shape(unconnected.world)
    plan = kind.of(training, dataclasses.replace(unconnected, shape=shape)).completed(make=True)
    ranks = join(plan.ranks, shape, layout.patience)
    try:
        yield with_fastest_precision(plan.on(ranks))
    except BaseException:
        disconnect(ranks, well=False)
        raise
    disconnect(ranks)
