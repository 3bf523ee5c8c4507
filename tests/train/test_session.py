"""The deed of a training in its parts: what is put back from a checkpoint, how it rewinds, tells and deletes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kit.makers import change, job_of
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.learn.objective import Objective
from ordsmed.mesh.layout import memory
from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.train import checkpoint, loop
from ordsmed.train import session as deed
from ordsmed.train.job import Job
from ordsmed.train.plan import planned
from ordsmed.train.saving import Saving

Recipe = Callable[..., Path]
TWO = '[[phase]]\nsteps = 2\nlength = 16\nbatch = 4\nrate = 1e-3\nschedule = "constant"'


@pytest.fixture
def job(recipe: Recipe) -> Callable[..., Job]:
    return lambda *words: job_of(recipe(steps=3, extra=TWO), "model.width=16", "model.layers=1", *words)


def test_validations_up_to_the_step_that_is_gone_on_from(tmp_path: Path) -> None:
    lines = [{"step": 2, "loss": 1.0}, {"step": 2, "validation": 3.0}, {"step": 4, "validation": 2.0},
             {"step": 6, "validation": 1.0}]  # fmt: skip
    assert deed._judged(tmp_path, 4) == []
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert deed._judged(tmp_path, 4) == lines[1:3]


@pytest.mark.parametrize("step", [2, 3])
def test_a_checkpoint_is_put_back(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Weights, moments, the guard's course and fp16's factor; states inside a phase, and none at its border."""
    words = ("trouble.spike=9.0", "trouble.window=3")
    one, other = job(*words), job("seed=1", *words)
    for each in (one, other):
        each.scaler.window, each.scaler.factor = 5, 64.0
    batches = next(loop.load(one.rows(0), one.share(0), 0, 1, workers=0, device=one.ranks.device))
    loop.update(one, batches, 1e-3, 0, 0)
    one.state.losses.trouble(1.5, 1.0)
    one.objective.state["h"] = torch.full((8, 1), 3.0)
    other.objective.state["h"] = torch.zeros(8, 1)
    Saving(one, tmp_path).save(step, final=True)
    path, state = checkpoint.latest(tmp_path / "checkpoints", place=tmp_path) or (tmp_path, {})
    other.scaler.factor = 1.0
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(Objective, "begin", lambda self, first, count: begun.append((first, count)))
    assert deed._restore(other, path, state) == step
    for ours, theirs in zip(one.parts, other.parts, strict=True):
        assert torch.equal(ours.local, theirs.local)
        moments = (one.optimizer.state[ours.local], other.optimizer.state[theirs.local])
        assert torch.equal(moments[0]["exp_avg"], moments[1]["exp_avg"])
    assert list(other.state.losses.losses) == list(one.state.losses.losses)
    assert other.state.losses.losses[-1] == 1.5
    assert (other.state.losses.losses.maxlen, other.scaler.factor) == (3, 64.0)
    assert begun == ([(0, 8)] if step == 2 else [])
    assert bool(other.objective.state) == (step == 2)
    if step == 2:
        assert float(other.objective.state["h"].sum()) == 24.0


def test_other_circumstances_are_told(
    job: Callable[..., Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Saving(job(), tmp_path).save(2, final=True)
    path, state = checkpoint.latest(tmp_path / "checkpoints", place=tmp_path) or (tmp_path, {})
    deed._restore(job(), path, state)
    assert "losses will agree" not in capsys.readouterr().err
    deed._restore(job("layout.micro=2"), path, {**state, "threads": 99})
    said = capsys.readouterr().err
    assert "made with threads 99, now 1; micro [8, 4], now [2, 2]: losses will agree, but not to the last bit" in said
    assert f"goes on from {path}" in said


def test_it_rewinds_as_often_as_it_must(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being written is waited for; all from the checkpoint on to the trouble teaches nothing; then it ends."""
    own, done = job(), []
    back = iter([(6, 4), (9, 4)])

    def train(job: Job, folder: Path, start: int, *_: Any, **__: Any) -> int:
        done.append(f"from {start}")
        for step, _ in back:
            raise loop.Rewind(step, f"loss {step}")
        return 12

    monkeypatch.setattr(loop, "train", train)
    monkeypatch.setattr(deed, "_found", lambda *_: (tmp_path, {"step": 4}))
    monkeypatch.setattr(deed, "_restore", lambda *_: done.append("restored") or 4)
    saving: Any = SimpleNamespace(settle=lambda: done.append("settled"))
    deed._train(own, tmp_path, 0, 1e12, saving, None)  # type: ignore[arg-type]
    assert done == ["from 0", "settled", "restored", "from 4", "settled", "restored", "from 4"]
    assert own.state.left_out == [{"first": 5, "last": 6, "why": "loss 6"}, {"first": 5, "last": 9, "why": "loss 9"}]


def test_what_is_told_before_the_first_step(job: Callable[..., Job]) -> None:
    own = job("average=0.9", 'layout.precision="fp32"')
    assert deed._machine(own, 3e12) == ["cpu, 1 thread; measured peak of all 3,000 GFLOP/s", own.precision]
    change(own, ranks=dataclasses.replace(own.ranks, world=2))
    assert deed._machine(own, 3e12)[0].startswith("2 processes, each cpu, 1 thread; ")
    plan = PretrainingPlan.of(own.recipe, planned(own.recipe.layout)).completed(make=False)
    count, lines = sum(p.numel() for p in own.objective.parameters()), plan.lines()
    assert lines[1].startswith(f"network: {count:,} parameters, ")
    assert lines[5].startswith("layout: 1 x 1 x 1")
    assert [line.partition(";")[0] for line in lines[6:8]] == [
        "phase 1: 3 steps of 8 rows x 32 tokens", "phase 2: 2 steps of 4 rows x 16 tokens"]  # fmt: skip
    assert lines[8:] == [memory(4 * count, 3)], "two moments and the mean"


def test_a_folder_is_deleted_with_what_a_kill_left_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / ".run.removed").mkdir()
    (tmp_path / ".run.removed" / "older").write_text("")
    deed._remove(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_who_comes_to_a_folder_goes_on_begins_or_is_refused(job: Callable[..., Job], tmp_path: Path) -> None:
    recipe, folder, words = job().recipe, tmp_path / "run", ["tiny/bert"]
    stands = lambda *how, **more: deed._stands(folder, recipe, *how, **more)  # noqa: E731
    mark = deed.run.fingerprint(recipe)
    assert not stands(words, anew=False)
    folder.mkdir()
    Run(folder).set(verb="pretrain", fingerprint=mark)
    assert not stands(words, anew=False), "killed between the first two files of a run"
    (folder / "recipe.toml").write_text("")
    assert stands(words, anew=False)
    assert stands([str(folder)], anew=False)
    Run(folder).set(fingerprint="another")
    (folder / "checkpoints" / "step-000000003").mkdir(parents=True)
    assert stands([str(folder)], anew=False), "a folder means itself"
    with pytest.raises(RecipeError, match="holds a run of another recipe or other data"):
        stands(words, anew=False)
    (folder / "checkpoints" / "step-000000003").rmdir()
    assert not stands(words, anew=False)
    assert not folder.exists(), "it never came to a checkpoint"
    folder.mkdir()
    Run(folder).set(verb="pretrain", fingerprint=mark)
    (folder / "recipe.toml").write_text("")
    assert not stands(words, anew=True)
    assert not folder.exists()


def test_a_restart_of_torchrun_does_not_begin_anew_again(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    recipe = job().recipe
    Run(tmp_path).set(verb="pretrain", fingerprint=deed.run.fingerprint(recipe))
    (tmp_path / "recipe.toml").write_text("")
    assert deed._stands(tmp_path, recipe, ["tiny/bert"], anew=True)
