"""A job's small decisions: what is left out and when that is too much, which weights are kept, what settings mean."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import change, job_of
from ordsmed.base import files, run
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.mesh.layout import Layout
from ordsmed.models import bert, gpt2
from ordsmed.nn import boxes
from ordsmed.train import job as jobs
from ordsmed.train import loop
from ordsmed.train.auto import divisors
from ordsmed.train.guard import Guard
from ordsmed.train.job import Job
from ordsmed.train.recipe import Pretraining
from ordsmed.train.saving import Saving

Recipe = Callable[..., Path]


@pytest.fixture
def job(recipe: Recipe) -> Job:
    return job_of(recipe(), "model.width=16", "model.layers=1", "trouble.most=2", "revisions=[3]")


def test_what_is_left_out_is_recorded_and_bounded(job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.leave_out(tmp_path, 4, 4, "loss nan")
    job.leave_out(tmp_path, 7, 9, "loss inf")
    assert [job.leaves_out(step) for step in (3, 4, 5, 6, 7, 8, 9, 10)] == [0, 1, 0, 0, 1, 1, 1, 0]
    assert Run(tmp_path).status["left_out"] == job.state.left_out
    said = capsys.readouterr().err
    assert "step 4: loss nan: step 4 teaches nothing" in said
    assert "step 9: loss inf: steps 7 to 9 teach nothing" in said
    with pytest.raises(RunError, match="step 12: loss nan; before it 2 times the like; wanted at most 2"):
        job.leave_out(tmp_path, 12, 12, "loss nan")
    assert len(job.state.left_out) == 2


def test_other_ranks_leave_the_record_to_the_first(job: Job, tmp_path: Path) -> None:
    change(job, ranks=dataclasses.replace(job.ranks, rank=1, world=2))
    job.leave_out(tmp_path, 4, 4, "loss nan")
    assert not Run(tmp_path).status


def test_revisions_and_the_best_so_far_are_kept(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [step for step in range(1, 6) if job.is_kept(step)] == [3]
    monkeypatch.setattr(type(job.recipe), "best_of", lambda self, judged: judged[-1]["step"])
    job.state.validations = [{"step": 5}]
    assert [step for step in range(1, 6) if job.is_kept(step)] == [3, 5]


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


def test_what_makes_another_network() -> None:
    """Not its dropout nor how fresh weights are spread; a row of types or none is the same."""
    one = bert.Settings(width=16, layers=2, heads=2, positions=8)
    jobs.check_same(one, dataclasses.replace(one, dropout=0.5, spread=0.5), "a run")
    jobs.check_same(None, one, "a run")
    for name, value in {"width": 32, "layers": 3, "heads": 4, "positions": 16, "inner": 99, "epsilon": 0.5}.items():
        with pytest.raises(RecipeError, match=f"model: found {name} .*; wanted {name} {value}, as a run has"):
            jobs.check_same(one, dataclasses.replace(one, **{name: value}), "a run")  # type: ignore[arg-type]
    jobs.check_same(dataclasses.replace(one, types=0), dataclasses.replace(one, types=1), "a run")
    with pytest.raises(RecipeError, match="types"):
        jobs.check_same(dataclasses.replace(one, types=2), dataclasses.replace(one, types=1), "a run")
    with pytest.raises(RecipeError, match="found kind bert; wanted kind gpt2"):
        jobs.check_same(one, gpt2.Settings(width=16, layers=2, heads=2, positions=8), "a run")


@pytest.mark.parametrize(
    ("number", "wanted"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 6]), (7, [1, 7]), (24, [1, 2, 4, 8, 24]), (9, [1, 3, 9])]
)
def test_micro_batches_to_try_are_about_doubling(number: int, wanted: list[int]) -> None:
    assert divisors(number) == wanted


@pytest.fixture
def begun(recipe: Recipe, tmp_path: Path) -> Path:
    """The folder of a run that was stopped after a step, in the fifth phase of all."""
    own = job_of(recipe("begun"), *SMALL)
    change(own, phases_before=4)
    loop.update(own, next(loop.load(own.rows(0), own.share(0), 0, 1, workers=0, device=own.ranks.device)), 1e-3, 0, 0)
    folder = tmp_path / "begun"
    Run(folder).begin(own.recipe, fingerprint="x")
    Saving(own, folder).save(1, final=True)
    return folder


SMALL = ("model.width=16", "model.layers=1")


def test_a_run_that_starts_from_another_goes_on_with_its_moments_and_chance(recipe: Recipe, begun: Path) -> None:
    own, plain = job_of(recipe(), *SMALL, f'init="{begun}"', "seed=3"), job_of(recipe(), *SMALL, "seed=3")
    assert own.phases_before == 5, "as many as that run has, so that no row comes again in its order"
    held = boxes.read_weights(begun / "checkpoints" / "step-000000001")
    for name, tensor in own.objective.state_dict().items():
        assert torch.equal(tensor, held.get(name, tensor)), name
    assert not torch.equal(plain.parts[0].local, own.parts[0].local)
    assert all(float(own.optimizer.state[part.local]["step"]) == 1 for part in own.parts)
    assert own.began_with != plain.began_with != ""
    state = {"phases": 6, "step": 1}
    gone_on = jobs.build(own.recipe, own.ranks, gone_on=state)
    assert gone_on.phases_before == 5, "its own phase is one of the six"
    assert gone_on.began_with == ""
    assert not torch.equal(gone_on.parts[0].local, own.parts[0].local), "a checkpoint will be put in"


def test_a_start_that_cannot_be(recipe: Recipe, begun: Path, tmp_path: Path) -> None:
    def start(*words: str) -> None:
        job_of(recipe(), *SMALL, *words)

    with pytest.raises(RecipeError, match=r"init: found .*nowhere, no such folder"):
        start(f'init="{tmp_path}/nowhere"')
    with pytest.raises(RecipeError, match="model: found"):
        job_of(recipe(), "model.width=32", f'init="{begun}"')
    state = begun / "checkpoints" / "step-000000001" / "state.json"
    files.write_json(state, {**files.read_json(state), "tokenizer": "another"})
    with pytest.raises(RecipeError, match=r"was trained with tokenizer another; wanted .*; use data encoded with"):
        start(f'init="{begun}"')
    shutil.rmtree(begun / "checkpoints")
    with pytest.raises(RecipeError, match="has no checkpoint; wanted a run that saved one"):
        start(f'init="{begun}"')


def test_rows_longer_than_the_network_and_warm_ups_longer_than_the_run(recipe: Recipe) -> None:
    with pytest.raises(RecipeError, match=r"phase\[1\].length: found 65, more than the model's 64 positions"):
        job_of(recipe(), "phase.length=65")
    assert job_of(recipe(), "phase.length=64").phases[0].length == 64


def test_epochs_are_so_many_steps_of_the_datas_rows(recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> None:
    more = "[[phase]]\nepochs = 2.5\nlength = 32\nbatch = 8\nrate = 1e-3\nwarmup = 2"
    asked, _ = run.load(Pretraining, str(recipe(steps=5, extra=more)), SMALL)
    rows = len(job_of(recipe(), *SMALL).rows(0))
    counted = jobs.counted(asked)
    assert [phase.steps for phase in counted.phase] == [5, round(2.5 * rows / 8)]
    assert (counted.phase[1].epochs, counted.phase[1].warmup) == (0.0, 2.0)
    assert f"phase 2: 2.5 epochs of {rows:,} rows are {counted.phase[1].steps:,} steps" in capsys.readouterr().err
    late = dataclasses.replace(asked.phase[1], epochs=0.01)
    assert jobs.counted(dataclasses.replace(asked, phase=(dataclasses.replace(late, warmup=1.0),))).phase[0].steps == 1
    with pytest.raises(RecipeError, match=r"phase\[1\].warmup: found 2; wanted 0 to 1 steps"):
        jobs.counted(dataclasses.replace(asked, phase=(late,)))


def test_what_a_layout_cannot_take_is_refused_before_anything_is_built(job: Job) -> None:
    """A batch of 8 for three processes, a cut that is no divisor, heads that do not divide."""
    for shape, words, said in (
        ((3, 1, 1), {}, r"phase\[1\].batch: found 8; wanted a multiple of the 3 devices"),
        ((1, 1, 1), {"micro": 3}, r"phase\[1\].batch: found 8, not a multiple of micro 3"),
        ((1, 1, 4), {"tensor": 4}, r"layout.tensor: found 4"),
    ):
        ranks = dataclasses.replace(job.ranks, world=shape[0] * shape[2], shape=shape)
        recipe = dataclasses.replace(job.recipe, layout=dataclasses.replace(job.recipe.layout, **words))  # type: ignore[arg-type]
        with pytest.raises(RecipeError, match=said):
            jobs.check(recipe, job.objective.model_settings, ranks)  # type: ignore[arg-type]


def test_a_validation_tells_what_the_objective_derives(recipe: Recipe) -> None:
    asked, _ = run.load(Pretraining, str(recipe(objective="mlm")), SMALL)

    def fresh(*_: object) -> torch.nn.Module:
        made = torch.nn.Linear(2, 2)
        made.measures = ("balanced",)  # type: ignore[assignment]
        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jobs, "fresh", fresh)
        made = jobs.build(asked, job_of(recipe(), *SMALL).ranks)
    assert made.material.measures == ("balanced",)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("new", [True, False])
def test_a_job_is_put_together_as_its_recipe_says(monkeypatch: pytest.MonkeyPatch, rank: int, new: bool) -> None:
    """In its order, with all that the recipe tells; the first rank alone keeps what the weights were."""
    seen: list[Any] = []
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", seen.append)
    monkeypatch.setattr(jobs.precision, "set_up", lambda layout, device: "said")
    monkeypatch.setattr(jobs.precision, "keep_in_half", lambda *_: seen.append("half"))
    monkeypatch.setattr(jobs.parallel, "spread", lambda *_: jobs.Parallel(rows={"table": 3}))
    monkeypatch.setattr(jobs.parallel, "sum_copies", lambda spread, parts, *_: seen.append(parts))
    monkeypatch.setattr(jobs, "groups", lambda objective, **how: seen.append(how) or [])
    optimizer = SimpleNamespace(param_groups=[{"parts": [1, 2]}, {"parts": [3]}])
    recipe: Any = SimpleNamespace(
        layout=Layout(deterministic=True), group=("rule",), layer_decay=0.7, trouble=Guard(window=7),
        optimizer=SimpleNamespace(build=lambda _: optimizer),
    )  # fmt: skip
    objective: Any = torch.nn.Linear(2, 2).eval()
    ranks, material = Ranks(torch.device("cpu"), rank=rank, world=2), SimpleNamespace()
    made = jobs.assemble(recipe, ranks, material, lambda: objective, new=new)  # type: ignore[arg-type]
    assert seen == [True, "half", {"rules": ("rule",), "layer_decay": 0.7, "rows": {"table": 3}}, [1, 2, 3]]
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert objective.training
    assert (made.precision, made.state.losses.guard.window) == ("said", 7)
    assert bool(made.began_with) == (new and rank == 0)


def test_phases_and_networks_are_held_against_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest row a network can have is allowed; each network of an objective is asked, by its name."""
    asked: list[Any] = []
    layout = SimpleNamespace(share=lambda phase, number, *more: asked.append((phase.length, number, *more)),
                             check=lambda *given, whose: asked.append((*given, whose)))  # fmt: skip
    phases = tuple(Phase(steps=1, length=length, batch=2, rate=1.0) for length in (4, 8))
    objective = SimpleNamespace(others=lambda settings: {"generator": "small"})
    recipe: Any = SimpleNamespace(phase=phases, layout=layout, objective=objective)
    settings, ranks = SimpleNamespace(longest=lambda: 8), Ranks(torch.device("cpu"), world=4, shape=(2, 1, 2))
    jobs.check(recipe, settings, ranks)
    assert asked == [(4, 1, "cpu", 0, 2), (8, 2, "cpu", 0, 2), (settings, [4, 8], 4, "model"),
                     ("small", [4, 8], 4, "generator")]  # fmt: skip
    settings.longest = lambda: 7
    with pytest.raises(RecipeError, match=r"^phase\[2\].length: found 8, more than the model's 7 positions"):
        jobs.check(recipe, settings, ranks)


@dataclasses.dataclass(frozen=True)
class Several:
    phase: tuple[Phase, ...]


@pytest.mark.parametrize(("epochs", "warmup", "steps"), [(1.5, 0.0, 4), (1.3, 3.0, 3), (0.01, 0.0, 1)])
def test_epochs_become_the_nearest_number_of_steps(
    monkeypatch: pytest.MonkeyPatch, epochs: float, warmup: float, steps: int
) -> None:
    """Of ten rows, four a step; a warm-up may be as long as the phase, not longer."""
    material = SimpleNamespace(tokenizer=None, rows=lambda index, before: range(10))
    monkeypatch.setattr(jobs.TextData, "of", lambda recipe: material)
    monkeypatch.setattr(jobs, "model_settings", lambda recipe: SimpleNamespace(fits=lambda tokenizer: None))
    phase = Phase(length=8, batch=4, rate=1.0, epochs=epochs, warmup=warmup)
    found = jobs.counted(Several((phase, Phase(steps=7, length=8, batch=4, rate=1.0))))  # type: ignore[arg-type]
    assert [(one.steps, one.epochs, one.warmup) for one in found.phase] == [(steps, 0.0, warmup), (7, 0.0, 0.0)]
    late = dataclasses.replace(phase, warmup=steps + 1.0)
    with pytest.raises(RecipeError, match=rf"^phase\[1\].warmup: found {steps + 1}; wanted 0 to {steps} steps"):
        jobs.counted(Several((late,)))  # type: ignore[arg-type]


def test_more_rows_than_a_run_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    material = SimpleNamespace(tokenizer=None, rows=lambda index, before: range(10))
    monkeypatch.setattr(jobs.TextData, "of", lambda recipe: material)
    monkeypatch.setattr(jobs, "model_settings", lambda recipe: SimpleNamespace(fits=lambda tokenizer: None))
    endless = Phase(length=8, batch=4, rate=1.0, epochs=1e20)
    with pytest.raises(RecipeError, match=r"^phase\[1\].epochs: found 1e\+20; wanted fewer"):
        jobs.counted(Several((endless,)))  # type: ignore[arg-type]
