"""Trials of pretraining: settings x seeds in one folder, ranked by their validation loss, as trials of fine-tuning."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ordsmed import cli
from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError, RunError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.machines.cluster import submit
from ordsmed.tell.report import report
from ordsmed.tell.show.show import show
from ordsmed.train import run_group
from ordsmed.train.grid import Trial
from ordsmed.train.pretrain.pretrain import pretrain, rehearse
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.training import check_axes
from ordsmed.weights.trained_model import open_model

Recipe = Callable[..., Path]
GRID = ["seeds=[1,2]", "grid.phase.learning_rate=[1e-6,3e-3]"]


class AtOnce:
    """What stands for a process: a trial made in this one, which needs no seconds to start."""

    made: list[str] = []  # noqa: RUF012

    def __init__(self, trial: Trial, environment: dict[str, str], threads: int, devices: int) -> None:
        self.made.append(trial.name)
        self.returncode: Any = 0
        words = ["pretrain", str(trial.path), *(["--yes"] if trial.yes else [])]
        with trial.output_file.open("w") as said, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                cli.main(words)
            except SystemExit as status:
                self.returncode = status.code

    def poll(self) -> Any:
        return self.returncode


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the trials that were begun."""
    monkeypatch.setattr(AtOnce, "made", [])
    monkeypatch.setattr(run_group, "start", AtOnce)
    monkeypatch.setattr(run_group, "LOOK", 0.0)
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
    return AtOnce.made


@pytest.mark.long
def test_they_are_made_compared_and_stand_for_the_best(
    recipe: Recipe, tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = str(recipe(steps=12)), tmp_path / "run"
    assert pretrain(path, GRID) == folder
    assert made == [
        "learning_rate-1e-06,seed-1",
        "learning_rate-1e-06,seed-2",
        "learning_rate-0.003,seed-1",
        "learning_rate-0.003,seed-2",
    ]
    found = files.read_json(folder / "trials.json")
    losses = {trial["trial"]: trial["scores"]["validation"] for trial in found["trials"]}
    assert found["lower_is_better"] is True
    assert found["best"] == min(losses, key=lambda name: losses[name])
    means = [row["scores"]["validation"]["mean"] for row in found["settings"]]
    assert [row["best"] for row in found["settings"]] == [mean == min(means) for mean in means]
    high = found["settings"][1]
    assert high["seeds"] == [1, 2]
    rows = [losses["learning_rate-0.003,seed-1"], losses["learning_rate-0.003,seed-2"]]
    assert high["scores"]["validation"]["mean"] == pytest.approx(sum(rows) / 2)
    assert high["scores"]["validation"]["best"] == min(rows)
    assert high["scores"]["validation"]["deviation"] > 0
    assert "mlm_right" in high["scores"]
    table = (folder / "trials.md").read_text()
    assert "Of held-out text" in table
    assert f"{losses[found['best']]:.4f}" in table
    assert kind_of_folder(folder) is FolderKind.TRIALS
    assert Run(folder).status["validation"] == losses[found["best"]]
    assert settings.read(folder / "recipe.toml")["phase"][0]["learning_rate"] == float(
        found["best"].split("rate-")[1].split(",")[0]
    )
    best = folder / "trials" / found["best"]
    assert open_model(folder).objective.state_dict().keys() == open_model(best).objective.state_dict().keys()
    assert sorted(path.parent.name for path in folder.glob("trials/*/checkpoints")) == [found["best"]]

    told = "\n".join(show(str(folder)))
    assert "trials: 4 done of 4" in told
    assert "| setting " in told
    assert pretrain(str(folder)) == folder
    assert pretrain(str(best)) == best
    assert len(made) == 4, "what is done is not made again"
    capsys.readouterr()
    cli.main(["pretrain", str(folder), "seeds=[1,2,3]"])
    assert made[4:] == ["learning_rate-1e-06,seed-3", "learning_rate-0.003,seed-3"]
    told = capsys.readouterr().out
    assert f"{folder}: 6 trials are done; {folder}/trials.md compares them" in told
    assert f"    ordsmed show {folder}\n" in told
    assert f"    ordsmed export {folder} " in told
    report.write([str(folder)], out=str(tmp_path / "page.html"))
    assert "learning_rate-0.003,seed-3" in (tmp_path / "page.html").read_text()
    with pytest.raises(RecipeError, match="holds several trials; wanted one run"):
        pretrain(path)
    with pytest.raises(RecipeError, match="holds trials of another recipe"):
        pretrain(path, [*GRID, "clip=2.0"])


@pytest.mark.long
def test_one_that_failed_is_made_again_and_parts_make_the_whole(
    recipe: Recipe, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, words = str(recipe(steps=4)), ["seeds=[1,2,3]"]
    pretrain(path, words, part="1/2")
    assert made == ["seed-1", "seed-3"]
    assert not (tmp_path / "run" / "trials.json").exists()
    monkeypatch.setenv("ORDSMED_STOP_AT", "2")
    with pytest.raises(RunError, match="1 of 1 trial failed: seed-2"):
        pretrain(path, words, part="2/2")
    monkeypatch.delenv("ORDSMED_STOP_AT")
    pretrain(path, words, part="2/2")
    assert made[2:] == ["seed-2", "seed-2"]
    assert "resumed from" in (tmp_path / "run/trials/seed-2/log.txt").read_text()
    assert Run(tmp_path / "run").status["state"] == "done"
    with pytest.raises(RecipeError, match="found with --part"):
        pretrain(path, words, part="2/2", anew=True)


def test_a_dry_run_tells_which_there_are(recipe: Recipe, tmp_path: Path, made: list[str]) -> None:
    path = str(recipe(steps=4))
    taken, lines = rehearse(path, GRID)
    assert lines[0].startswith("trials: 4, each trained on one device: learning_rate-1e-06,seed-1 ")
    assert taken.several
    assert any(line.startswith("network: ") for line in lines)
    assert lines[0] in show(path, GRID)
    assert not (tmp_path / "run").exists()
    assert made == []
    wish = submit.JobRequest(site="ex3", account="a", time="1h", parts=2)
    written = submit.prepare(path, GRID, wish, out=str(tmp_path / "job.sh"))
    assert written.lines[0] == "trials: 4, in 2 jobs"
    assert "--part" in (tmp_path / "job.sh").read_text()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"devices": 2}, "--devices: found 2 processes, with several trials"),
        ({"deadline": 60.0}, "--deadline: found with several trials"),
        ({"layout": "auto"}, "--layout: found auto, with several trials"),
    ],
)
def test_what_several_runs_cannot_have(recipe: Recipe, how: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        rehearse(str(recipe(steps=4)), GRID, **how)


def test_what_makes_no_sense_is_refused_before_any_begins(recipe: Recipe, tmp_path: Path, made: list[str]) -> None:
    path = str(recipe(steps=4))
    with pytest.raises(RecipeError, match="passes over"):
        pretrain(path, ["grid.phase.steps=[4,400000]"])
    assert made == []
    assert not (tmp_path / "run").exists()
    with pytest.raises(RecipeError, match="found 1/2, of one run"):
        pretrain(path, part="1/2")


def test_seeds_and_grids_that_are_none(recipe: Recipe) -> None:
    assert check_axes((1, 2), {"phase": {"learning_rate": [1]}, "clip": [0.0]}) == {
        "phase.learning_rate": [1],
        "clip": [0.0],
    }
    table = settings.read(recipe())
    for more, words in (
        ({"seeds": [1, 1]}, "wanted different ones"),
        ({"grid": {"seed": [1]}}, "grid: found seed"),
        ({"grid": {"clip": []}}, "a list of one or more values"),
        ({"jobs": -1}, "jobs: found -1"),
    ):
        with pytest.raises(RecipeError, match=words):
            settings.decode(Pretraining, {**table, **more}, "mine")
