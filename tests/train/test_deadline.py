"""Steps that fit a deadline, with speeds that are told and not measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from makers import job_of
from ordsmed.base.errors import RecipeError
from ordsmed.learn.phases import Phase
from ordsmed.train import deadline

Recipe = Callable[..., Path]


def test_a_phase_and_its_warm_up_shrink_alike() -> None:
    phase = Phase(steps=100, length=8, batch=1, rate=1.0, warmup=20)
    found = deadline._shrunk(phase, 0.25)
    assert (found.steps, found.warmup, found.rate) == (25, 5.0, 1.0)
    share = deadline._shrunk(Phase(steps=100, length=8, batch=1, rate=1.0, warmup=0.1), 0.25)
    assert (share.steps, share.warmup) == (25, 0.1)
    assert deadline._shrunk(phase, 0.001).steps == 1
    assert deadline._shrunk(Phase(steps=3, length=8, batch=1, rate=1.0, warmup=3), 0.4).warmup == 1.0


@pytest.fixture
def speeds(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """How many steps are left of two phases of 100 and 40, of 1 and 5 seconds a step, and 20 seconds of judging."""
    more = "[[phase]]\nsteps = 40\nlength = 32\nbatch = 8\nrate = 1e-3\n"

    def fitted(seconds: float) -> list[int]:
        job = job_of(recipe(steps=100, extra=more), "model.width=16", "model.layers=1")
        monkeypatch.setattr(deadline, "build", lambda *_: job)
        monkeypatch.setattr(deadline, "_step_seconds", lambda job, index: (1.0, 5.0)[index])
        monkeypatch.setattr(deadline, "_judge_seconds", lambda job: 20.0)
        monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: 0.0))
        return [phase.steps for phase in deadline.fit(job.recipe, job.ranks, seconds).phase]  # type: ignore[arg-type]

    return fitted


def test_steps_are_never_added_and_shrink_by_the_same_share(speeds: Callable[..., list[int]]) -> None:
    """300 seconds of steps and 20 of judging fit into 340; of half the time half of the steps are left."""
    assert speeds(1e6) == [100, 40]
    assert speeds(340.0) == [100, 40]
    half = (150.0 + 20.0) / deadline.RESERVE + 0.01
    assert speeds(half) == [50, 20]


def test_a_deadline_that_takes_every_step_is_refused(speeds: Callable[..., list[int]]) -> None:
    with pytest.raises(RecipeError, match="--deadline: 10 s is less than a step of every phase takes"):
        speeds(10.0)


def test_a_step_takes_its_share_of_the_validations(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a second on: one a step, and one for two of eight rows judged, every eighth step."""
    clock = itertools.count()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    monkeypatch.setattr(deadline, "JUDGED_ROWS", 2)
    words = ["model.width=16", "model.layers=1", "validation_rows=8"]
    job = job_of(recipe(steps=9), *words, "validate=8")
    before = [part.local.detach().clone() for part in job.parts]
    assert deadline._judge_seconds(job) == 4.0
    assert deadline._step_seconds(job, 0) == 1.5
    assert deadline._step_seconds(job_of(recipe(steps=9), *words, "validate=0"), 0) == 1.0
    assert all(torch.equal(a, part.local) for a, part in zip(before, job.parts, strict=True)), "nothing is learned"
