"""A job's small decisions: what is left out and when that is too much, which weights are kept, what settings mean."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import change, job_of
from ordsmed.base.errors import RunError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.train import job as jobs
from ordsmed.train.auto import divisors
from ordsmed.train.guard import Guard
from ordsmed.train.job import Job
from ordsmed.train.mesh.layout import Layout

Recipe = Callable[..., Path]


@pytest.fixture
def job(recipe: Recipe) -> Job:
    return job_of(recipe(), "model.width=16", "model.layers=1", "trouble.most=2", "revisions=[3]")


def test_what_is_left_out_is_recorded_and_bounded(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.skip_steps(tmp_path, 4, 4, "loss nan")
    job.skip_steps(tmp_path, 7, 9, "loss inf")
    assert [job.is_skipped(step) for step in (3, 4, 5, 6, 7, 8, 9, 10)] == [0, 1, 0, 0, 1, 1, 1, 0]
    assert Run(tmp_path).status["left_out"] == job.state.left_out
    said = capsys.readouterr().err
    assert "step 4: loss nan: step 4 is skipped" in said
    assert "step 9: loss inf: steps 7 to 9 are skipped" in said
    with pytest.raises(RunError, match="step 12: loss nan; steps were skipped 2 times before; wanted at most 2"):
        job.skip_steps(tmp_path, 12, 12, "loss nan")
    assert len(job.state.left_out) == 2


def test_other_ranks_leave_the_record_to_the_first(job: Job, tmp_path: Path) -> None:
    change(job, ranks=dataclasses.replace(job.ranks, rank=1, world=2))
    job.skip_steps(tmp_path, 4, 4, "loss nan")
    assert not Run(tmp_path).status


@pytest.mark.parametrize(
    ("device", "threads", "asked", "wanted"),
    [("cpu", 8, -1, 0), ("cpu", 8, 3, 3), ("cuda", 8, -1, 7), ("cuda", 64, -1, 8), ("cuda", 8, 0, 0)],
)
def test_processes_that_make_batches(job: Job, device: str, threads: int, asked: int, wanted: int) -> None:
    change(job, ranks=dataclasses.replace(job.ranks, device=torch.device(device), threads=threads))
    layout = dataclasses.replace(job.recipe.layout, workers=asked)
    change(job, recipe=dataclasses.replace(job.recipe, layout=layout))
    assert job.workers == wanted


def test_the_streams_of_a_rank_begin_where_its_rows_do(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(type(job.objective), "begin", lambda self, first, count: begun.append((first, count)))
    for rank in (0, 1):
        change(job, ranks=dataclasses.replace(job.ranks, rank=rank, world=2, shape=(2, 1, 1)))
        job.carry(0)
    assert begun == [(0, 4), (4, 4)]


def test_rows_go_on_where_the_run_before_stopped(job: Job) -> None:
    import numpy as np

    own, numbers = job.rows(0).batch(np.arange(8)).tokens.tolist(), np.arange(8)
    change(job, phases_before=1)
    assert job.rows(0).batch(numbers).tokens.tolist() != own


@pytest.mark.parametrize(
    ("number", "wanted"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 6]), (7, [1, 7]), (24, [1, 2, 4, 8, 24]), (9, [1, 3, 9])]
)
def test_micro_batches_to_try_are_about_doubling(number: int, wanted: list[int]) -> None:
    assert divisors(number) == wanted


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("new", [True, False])
def test_a_job_is_put_together_as_its_recipe_says(monkeypatch: pytest.MonkeyPatch, rank: int, new: bool) -> None:
    seen: list[Any] = []
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", seen.append)
    monkeypatch.setattr(jobs.precision, "set_up", lambda layout, device: "said")
    monkeypatch.setattr(jobs.precision, "return_half", lambda *_: seen.append("half"))
    monkeypatch.setattr(jobs.parallel, "spread", lambda *_: jobs.Parallel(rows={"table": 3}))
    monkeypatch.setattr(jobs.parallel, "sum_copies", lambda spread, parts, *_: seen.append(parts))
    monkeypatch.setattr(jobs, "groups", lambda objective, **how: seen.append(how) or [])
    optimizer = SimpleNamespace(param_groups=[{"parts": [1, 2]}, {"parts": [3]}])
    recipe: Any = SimpleNamespace(
        layout=Layout(deterministic=True),
        group=("rule",),
        layer_decay=0.7,
        trouble=Guard(window=7),
        decay_schedule="constant",
        optimizer=SimpleNamespace(build=lambda _: optimizer),
    )
    objective: Any = torch.nn.Linear(2, 2).eval()
    ranks, data = Ranks(torch.device("cpu"), rank=rank, world=2), SimpleNamespace()
    made = jobs.assemble(recipe, ranks, data, lambda: objective, new=new)  # type: ignore[arg-type]
    assert seen == [True, "half", {"rules": ("rule",), "layer_decay": 0.7, "rows": {"table": 3}}, [1, 2, 3]]
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert objective.training
    assert (made.precision, made.state.losses.guard.window) == ("said", 7)
    assert bool(made.began_with) == (new and rank == 0)


def test_moments_are_forgotten_by_a_new_phase_that_rewarms_alone(recipe: Recipe) -> None:
    second = "[[phase]]\nsteps = 6\nlength = 16\nbatch = 4\nrate = 1e-3\nwarmup = 2\nrewarm = true"
    job = job_of(recipe(extra=second), "model.width=16", "model.layers=1")
    for group in job.optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = torch.ones_like(weight)
    job.optimizer.step()

    def remembers() -> set[bool]:
        return {bool(value.any()) for state in job.optimizer.state.values() for value in state.values()}

    for index, new in ((0, True), (1, False), (0, False)):
        job.begin_phase(index, new=new)
        assert remembers() == {True}, (index, new)
    job.begin_phase(1, new=True)
    assert remembers() == {False}
