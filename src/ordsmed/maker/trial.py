"""A trial of the planned training: a few steps of its network on random text, timed before anything is written."""

from __future__ import annotations

import contextlib
import io
import tempfile
from typing import Any

from ordsmed.base import settings
from ordsmed.maker.networks import Table
from ordsmed.measure.bench.recipe import Bench
from ordsmed.measure.bench.training import planned
from ordsmed.train.auto import speed_of

ROWS = 32  # of a step that is timed, at most: with more a token takes nearly as long
STEPS = 3  # that are timed; the fastest but the first counts


def tokens_a_second(network: Table, recipe: Table, vocabulary: int, threads: int) -> float:
    """Return how many tokens a second one process with so many threads trains on, by the recipe of a pretraining."""
    phase = recipe["phase"][0]
    rows = min(phase["batch"], ROWS)
    table: dict[str, Any] = {
        "measure": "training",
        "model": network,
        "objective": recipe["objective"],
        "optimizer": recipe["optimizer"],
        "length": phase["length"],
        "batch": rows,
        "vocabulary": vocabulary,
        "tokens": (STEPS + 1) * rows * phase["length"],
        "layout": {"device": "cpu", "threads": threads},
    }
    bench = settings.decode(Bench, table, "trial")
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),  # where the random text is written
        contextlib.redirect_stderr(io.StringIO()),
        planned(bench) as plan,
    ):
        return speed_of(plan.build(), 0, steps=STEPS) * phase["length"]
