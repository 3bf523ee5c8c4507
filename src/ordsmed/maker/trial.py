"""A trial of the planned training: time a few steps of its network on random text, before anything is written."""

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

ROWS = 32  # most rows of a timed step: with more a token takes nearly as long
STEPS = 3  # timed steps; the fastest after the first counts


def tokens_a_second(network: Table, recipe: Table, vocabulary: int, threads: int) -> float:
    """Return the tokens a second of one process with `threads` threads, training by a pretraining's recipe."""
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
