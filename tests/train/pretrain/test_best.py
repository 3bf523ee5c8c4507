"""The best checkpoint of a pretraining: kept, used by default, the same after a kill; and stopping early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import settings, snapshots
from ordsmed.base.ending import STOP_AT, Stopped
from ordsmed.base.run import Run, read_recipe
from ordsmed.tell.report import content
from ordsmed.tell.show import state
from ordsmed.train.job import Job
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.texts import TextData
from ordsmed.weights import weights
from ordsmed.weights.export import export
from ordsmed.weights.trained_model import open_model

Recipe = Callable[..., Path]
OVERFITTING = [5.0, 4.0, 4.5, 4.6, 4.7]


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the validation losses of runs, in their order."""

    def use(values: Sequence[float]) -> None:
        def found(self: TextData, job: Job, index: int) -> dict[str, float]:
            return {"validation": values[sum(line["step"] > 0 for line in job.state.validations)]}

        monkeypatch.setattr(TextData, "validate", found)

    return use


def run(recipe: Recipe, name: str = "run", **top: Any) -> Path:
    words = [f"{key}={str(value).lower()}" for key, value in top.items()]
    asked = recipe(name, steps=10, validate=2, save=0, keep=1, log=1)
    return pretrain(str(asked), words)


def left(folder: Path) -> str:
    return weights.digest(weights.read(folder / "weights" / "model.safetensors"))


def stored(folder: Path, step: int) -> str:
    return weights.digest(weights.read(snapshots.path_of(folder / "checkpoints", step) / "model.safetensors"))


def test_the_best_checkpoint_is_kept_and_used(
    recipe: Recipe, losses: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses(OVERFITTING)
    folder = run(recipe)
    assert snapshots.steps(folder / "checkpoints") == [4, 10]
    assert left(folder) == stored(folder, 4) != stored(folder, 10)
    assert (open_model(folder).step, open_model(folder, 10).step) == (4, 10)
    status = Run(folder).status
    assert (status["step"], status["validation"]) == (4, 4.0)
    assert (status["verdict"]["kind"], status["verdict"]["best_step"], status["verdict"]["last"]) == (
        "overfitting",
        4,
        4.7,
    )
    line = "overfitting: the validation loss rose, from 4 at step 4 to 4.7 at step 10; the weights of step 4 are used"
    assert line in capsys.readouterr().err
    assert any(line in shown for shown in state.lines(folder))
    assert "Overfitting: the validation loss rose" in content.content([str(folder)])["runs"][0]["summary"]
    exported = weights.read(export(folder, tmp_path / "hf") / "model.safetensors")
    words = weights.read(folder / "weights" / "model.safetensors")["model.words.weight"]
    assert any(tensor.shape == words.shape and bool((tensor == words).all()) for tensor in exported.values())


def test_a_killed_and_resumed_run_keeps_the_same_best(
    recipe: Recipe, losses: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses(OVERFITTING)
    whole = run(recipe, "whole")
    for stop in ("3", "4", "7"):
        monkeypatch.setenv(STOP_AT, stop)
        with pytest.raises(Stopped):
            run(recipe, f"cut{stop}")
        monkeypatch.delenv(STOP_AT)
        folder = run(recipe, f"cut{stop}")
        assert snapshots.steps(folder / "checkpoints") == [4, 10]
        assert (left(folder), stored(folder, 10)) == (left(whole), stored(whole, 10))


def test_a_run_without_overfitting_or_validation_leaves_its_last_weights(
    recipe: Recipe, losses: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    losses([5.0, 4.5, 4.2, 4.0, 3.9])
    folder = run(recipe)
    assert (left(folder), snapshots.steps(folder / "checkpoints")) == (stored(folder, 10), [10])
    assert Run(folder).status["verdict"]["kind"] == "still falling"
    losses(OVERFITTING)
    last = run(recipe, "last", keep_best=False)
    assert (Run(last).status["step"], snapshots.steps(last / "checkpoints")) == (10, [10])
    assert "step 10 are used, those of step 4 were not kept" in Run(last).status["verdict"]["line"]
    monkeypatch.setattr(TextData, "validate", lambda self, job, index: {})
    unjudged = run(recipe, "unjudged")
    assert (left(unjudged), "verdict" in Run(unjudged).status) == (stored(unjudged, 10), False)


def test_a_run_from_before_keeps_its_last_weights(recipe: Recipe, losses: Callable[..., None]) -> None:
    losses(OVERFITTING)
    folder = run(recipe)
    table = settings.read(folder / "recipe.toml")
    del table["keep_best"]
    (folder / "recipe.toml").write_text(settings.write(table))
    assert not read_recipe(Pretraining, folder).keep_best
    pretrain(str(folder))
    assert (Run(folder).status["step"], left(folder)) == (10, stored(folder, 10))


def test_patience_ends_a_run(recipe: Recipe, losses: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    losses(OVERFITTING)
    folder = run(recipe, patience=2)
    assert "step 8: stops early" in capsys.readouterr().err
    status = Run(folder).status
    assert (status["state"], status["step"], status["verdict"]["last_step"]) == ("done", 4, 8)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    pretrain(str(folder))
    assert "stopped early, at step 8 of 10, and is done" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")} == before


def test_another_run_starts_from_the_best(
    recipe: Recipe, losses: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    losses(OVERFITTING)
    folder = run(recipe)
    more = run(recipe, "more", init=str(folder))
    assert "step-000000004, the best of" in capsys.readouterr().err
    assert open_model(more, 0).objective.state_dict().keys() == open_model(folder).objective.state_dict().keys()
    best, begun = open_model(folder).objective.state_dict(), open_model(more, 0).objective.state_dict()
    assert all(bool((best[name] == begun[name]).all()) for name in best)


def test_a_damaged_best_is_passed_over(
    recipe: Recipe, losses: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    losses(OVERFITTING)
    folder = run(recipe, keep=9, save=2)
    (snapshots.path_of(folder / "checkpoints", 4) / "model.safetensors").write_bytes(b"damaged")
    Run(folder).set(state="running")
    pretrain(str(folder))
    assert "using the next best checkpoint" in capsys.readouterr().err
    assert (Run(folder).status["step"], left(folder)) == (6, stored(folder, 6))
