"""Trials: settings x seeds x checkpoints, made some at a time, told in a table, and the best of them to go on with."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import SPECIAL, WORDS
from kit.task_files import task_files
from ordsmed import cli
from ordsmed.base import files, run, settings, snapshots
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.nn.model import own_tensors
from ordsmed.tell.show.picture import Pictures
from ordsmed.train import run_group
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.finetune.summary import summary_lines
from ordsmed.train.finetune.trials import FinetuningTrials
from ordsmed.train.grid import Trial
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.weights.trained_model import open_model

pytestmark = pytest.mark.long

RECIPE = """
steps = 24
batch = 16
learning_rate = 2e-3
warmup = 0
layer_decay = 1.0
save = 4
keep = 9
features = ""
tokenizer = "{folder}/vocab.txt"
out = "{folder}/out"
layout = {{ device = "cpu", threads = 1 }}
[model]
kind = "bert"
width = 32
layers = 1
heads = 2
positions = 64
[task]
kind = "classify"
train = "{folder}/train.tsv"
dev = "{folder}/dev.tsv"
length = 16
"""


def labelled(folder: Path) -> Path:
    """Texts whose words tell their label, and a recipe that learns it."""
    draw = np.random.default_rng(3)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS))]) + "\n")
    for name, count in (("train", 64), ("dev", 48)):
        high = draw.random(count) < 0.4
        texts = draw.integers(0, 10, (count, 5)) + 10 * high[:, None]
        lines = [
            " ".join(f"w{n}" for n in text) + f"\t{'high' if h else 'low'}" for text, h in zip(texts, high, strict=True)
        ]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(folder=folder))
    return path


class AtOnce:
    """What stands for a process: a trial made in this one, which needs no seconds to start."""

    made: list[str] = []  # noqa: RUF012

    def __init__(self, trial: Trial, environment: dict[str, str], threads: int, devices: int) -> None:
        self.made.append(trial.name)
        self.returncode: Any = 0
        with trial.output_file.open("w") as said, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                cli.main(["finetune", str(trial.path)])
            except SystemExit as status:
                self.returncode = status.code

    def poll(self) -> Any:
        return self.returncode


@pytest.fixture(scope="module", autouse=True)
def _in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_group, "start", AtOnce)
        patch.setattr(run_group, "LOOK", 0.0)
        patch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
        yield


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the trials that were begun."""
    monkeypatch.setattr(AtOnce, "made", [])
    return AtOnce.made


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder of two rates with two seeds each."""
    recipe = labelled(tmp_path_factory.mktemp("grid"))
    return finetune(
        str(recipe), ["seeds=[1,2]", "grid.learning_rate=[1e-6,5e-3]", "grid.task.length=[16]"], callbacks=[Pictures()]
    )


NAMES = [f"learning_rate-{rate},length-16,seed-{seed}" for rate in ("1e-06", "0.005") for seed in (1, 2)]


def accuracies(folder: Path, names: list[str]) -> list[float]:
    return [files.read_json(folder / "trials" / name / "scores.json")["accuracy"] for name in names]


def test_the_table_holds_what_the_trials_found(grid: Path) -> None:
    found = files.read_json(grid / "trials.json")
    assert [trial["trial"] for trial in found["trials"]] == NAMES
    assert [row["setting"] for row in found["settings"]] == [{"learning_rate": r, "length": 16} for r in (1e-6, 5e-3)]
    table = (grid / "trials.md").read_text()
    for row, names in zip(found["settings"], (NAMES[:2], NAMES[2:]), strict=True):
        own = accuracies(grid, names)
        told = row["scores"]["accuracy"]
        assert told["mean"] == pytest.approx(statistics.mean(own))
        assert told["deviation"] == pytest.approx(statistics.stdev(own))
        assert told["best"] == max(own)
        assert f"{statistics.mean(own):.2f} ± {statistics.stdev(own):.2f}" in table
    assert found["settings"][1]["best"] > found["settings"][0]["best"]
    assert "**learning_rate 0.005, length 16**" in table
    assert "rate 0.005, length 16" in (grid / "trials.svg").read_text()
    assert max(accuracies(grid, NAMES)) > 95 > 70 > found["settings"][0]["guessing"]["accuracy"]["mean"]


def test_each_trial_has_its_own_settings(grid: Path) -> None:
    asked = [settings.read(grid / "trials" / name / "recipe.toml") for name in NAMES]
    assert [(recipe["learning_rate"], recipe["seed"]) for recipe in asked] == [
        (1e-6, 1),
        (1e-6, 2),
        (5e-3, 1),
        (5e-3, 2),
    ]
    assert not any(recipe["seeds"] or recipe["grid"] for recipe in asked)


def test_the_folder_stands_for_the_best_trial(grid: Path) -> None:
    best = NAMES[int(np.argmax(accuracies(grid, NAMES)))]
    own, theirs = open_model(grid), open_model(grid / "trials" / best)
    assert own.step == theirs.step == Run(grid).status["step"]
    assert own.objective.labels == ("high", "low")
    for name, tensor in own_tensors(theirs.objective).items():
        assert torch.equal(tensor, own_tensors(own.objective)[name])
    predicted = "predictions/predictions.tsv"
    assert (grid / predicted).read_bytes() == (grid / "trials" / best / predicted).read_bytes()
    assert [name for name in NAMES if (grid / "trials" / name / "checkpoints").exists()] == [best]
    assert f"the folder has the results of the best trial, {best}" in summary_lines(grid)


def test_a_trial_that_is_done_is_not_made_again(grid: Path, made: list[str]) -> None:
    has_only_weights = next(name for name in NAMES if not (grid / "trials" / name / "checkpoints").exists())
    stood = read(grid / "trials" / has_only_weights / "metrics.jsonl")
    assert finetune(str(grid / "trials" / has_only_weights)) == grid / "trials" / has_only_weights
    assert read(grid / "trials" / has_only_weights / "metrics.jsonl") == stood
    finetune(str(grid), ["jobs=7"])
    assert made == []
    assert Run(grid).status["state"] == "done"


def test_parts_make_what_the_whole_makes(grid: Path, tmp_path: Path, made: list[str]) -> None:
    recipe, more = str(labelled(tmp_path)), ["seeds=[1,2]", "grid.learning_rate=[1e-6,5e-3]", "grid.task.length=[16]"]
    assert finetune(recipe, more, part="3/3") == tmp_path / "out"
    assert made == [NAMES[2]]
    assert not (tmp_path / "out/trials.json").exists()
    finetune(recipe, more, part="2/3")
    finetune(recipe, more, part="1/3")
    assert made == [NAMES[2], NAMES[1], NAMES[0], NAMES[3]]
    assert Run(tmp_path / "out").status["state"] == "done"
    found, whole = (files.read_json(folder / "trials.json") for folder in (tmp_path / "out", grid))
    assert [row["scores"] for row in found["settings"]] == [row["scores"] for row in whole["settings"]]
    assert found["best"] == whole["best"]
    made.clear()
    assert finetune(recipe, more, part="1/3") == tmp_path / "out"
    assert made == []
    with pytest.raises(RecipeError, match="--part: found 0/3; wanted I/N"):
        finetune(recipe, more, part="0/3")
    with pytest.raises(RecipeError, match="--anew: found with --part"):
        finetune(recipe, more, part="1/3", anew=True)
    with pytest.raises(RecipeError, match="--part: found 1/2, of one run; wanted a recipe with `seeds` or a `grid`"):
        finetune(recipe, ["out=other"], part="1/2")


def test_finished_trials_may_lie_where_nothing_can_be_written(
    grid: Path, made: list[str], read_only: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stay; what would change them is refused, in the line that says where."""
    read_only(grid)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert finetune(str(grid)) == grid
    assert f"{grid}: is done and read-only, so nothing is changed" in capsys.readouterr().err
    with pytest.raises(OrdsmedError, match=r"^\S+: cannot write: Read-only file system; name another folder"):
        finetune(str(grid), ["seeds=[1,2,3]"])
    assert made == []


def test_a_disk_that_fails_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the status that cannot be written either."""
    recipe = run.load(Finetuning, str(labelled(tmp_path)), ["seeds=[1,2]"])[0]

    def full(*_: Any) -> Any:
        monkeypatch.setattr(Run, "set", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "status")))
        raise RunError("trials", "cannot write: No space left on device")

    monkeypatch.setattr(FinetuningTrials, "make", full)
    with pytest.raises(RunError, match=r"^trials: cannot write: No space left on device$"):
        FinetuningTrials.of(tmp_path / "run", recipe, "recipe").perform()


def test_another_recipe_is_refused(grid: Path, made: list[str]) -> None:
    recipe, how = str(grid.parent / "recipe.toml"), ["seeds=[1,2]", "grid.learning_rate=[1e-6,5e-3]"]
    with pytest.raises(RecipeError, match="another recipe"):
        finetune(recipe, [*how, "batch=8"])
    with pytest.raises(RecipeError, match="several trials"):
        finetune(recipe)
    with pytest.raises(RecipeError, match=r"did you mean `task\.length`"):
        finetune(recipe, [*how, "grid.task.lenght=[16]"])
    with pytest.raises(RecipeError, match=r"grid: found 1,000,000 trials; wanted at most 10,000; use fewer values"):
        finetune(
            recipe, [*how, f"seeds={list(range(1000))}", f"grid.learning_rate={[n / 1e6 for n in range(1, 1001)]}"]
        )
    with pytest.raises(RecipeError, match="same trial"):
        finetune(recipe, ["grid.learning_rate=[5e-4,0.0005]"])
    with pytest.raises(RecipeError, match="is not a run"):
        finetune(recipe, ["step=all"])
    assert made == []
    assert Run(grid).status["state"] == "done"


def test_seeds_are_added_and_a_trial_goes_on(tmp_path: Path, made: list[str]) -> None:
    recipe = str(labelled(tmp_path))
    folder = finetune(recipe, ["seeds=[1]"])
    first = folder / "trials" / "seed-1"
    whole = [(line["step"], line.get("loss")) for line in read(first / "metrics.jsonl")]
    for step in snapshots.steps(first / "checkpoints")[1:]:  # as if it had been killed
        (snapshots.path_of(first / "checkpoints", step) / "state.json").unlink()
    Run(first).set(state="running")
    made.clear()
    assert finetune(recipe, ["seeds=[1,3]"]) == folder
    assert made == ["seed-1", "seed-3"]
    assert f"resumed from {first}/checkpoints/step-000000004" in (first / "log.txt").read_text()
    assert [(line["step"], line.get("loss")) for line in read(first / "metrics.jsonl")] == whole
    made.clear()
    assert finetune(str(folder), ["seeds=[1,3,4]"]) == folder
    assert made == ["seed-4"]
    assert files.read_json(folder / "trials.json")["settings"][0]["seeds"] == [1, 3, 4]


def test_a_trial_that_fails_is_told_and_made_again(
    tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, late = labelled(tmp_path), tmp_path / "late.tsv"
    words = ["finetune", str(recipe), f'grid.task.train=["{late}","{tmp_path}/train.tsv"]']
    with pytest.raises(SystemExit) as status:
        cli.main(words)
    assert status.value.code == 1
    said = capsys.readouterr().err
    failed, other = made
    assert f"{failed} failed: {late}: no such file" in said
    assert f"1 of 2 trials failed: {failed}" in said
    assert "resumed from" not in said, "what trials say stands in their logs"
    assert Run(tmp_path / "out").status["state"] == "failed"
    assert Run(tmp_path / "out" / "trials" / other).status["state"] == "done"
    assert f"{failed} failed" in (tmp_path / "out" / "trials.md").read_text()
    late.write_text((tmp_path / "train.tsv").read_text())
    made.clear()
    cli.main(words)
    assert made == [failed]
    assert f"next:\n    ordsmed evaluate {tmp_path}/out" in capsys.readouterr().out


def test_every_checkpoint_of_a_pretraining(recipe: Callable[..., Path], tmp_path: Path) -> None:
    pretrained = pretrain(str(recipe("before", steps=8, keep=9, validate=4)))
    asked = labelled(tmp_path)
    said, task = asked.read_text().replace(f'tokenizer = "{tmp_path}/vocab.txt"', "").split("[model]")
    asked.write_text(said + task[task.index("[task]") :])
    words = [f"init={pretrained}", "step=all", "freeze=true"]
    folder = finetune(str(asked), words, callbacks=[Pictures()])
    assert [row["setting"] for row in files.read_json(folder / "trials.json")["settings"]] == [
        {"step": 0},
        {"step": 4},
        {"step": 8},
    ]
    for step in (0, 4, 8):
        began = own_tensors(open_model(pretrained, step).objective)
        left = own_tensors(open_model(folder / "trials" / f"step-{step},seed-0").objective)
        body = [name for name in left if name.startswith("model.")]
        assert len(body) > 10
        assert all(torch.equal(left[name], began[name]) for name in body)
    assert "step of pretraining" in (folder / "trials.svg").read_text()


def test_trials_of_spans_are_compared_by_their_f1(tmp_path: Path) -> None:
    """That tags mark spans is known only when the training data were read: the recipe without them says accuracy."""
    task_files(tmp_path)
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path).replace("classify", "tag").replace(".tsv", ".conll"))
    finetune(str(path), ["grid={learning_rate=[1e-3,1e-2]}", "save=0", "task.length=60"])
    found = files.read_json(tmp_path / "out" / "trials.json")
    assert found["score"] == "f1"
    best = max(found["trials"], key=lambda trial: trial["scores"]["f1"])
    assert found["best"] == best["trial"]
    assert "| f1 " in (tmp_path / "out" / "trials.md").read_text()


def test_one_device_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(tmp_path)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RecipeError, match="each trial has one device"):
        finetune(str(tmp_path / "recipe.toml"), ["seeds=[1,2]"])


def test_a_request_to_stop_reaches_the_trials(tmp_path: Path) -> None:
    words = [str(labelled(tmp_path)), "seeds=[1,2]", "jobs=2", "steps=100000", "save=50000"]
    process = subprocess.Popen([sys.executable, "-m", "ordsmed", "finetune", *words], stderr=subprocess.PIPE, text=True)
    runs = [tmp_path / "out" / "trials" / f"seed-{seed}" for seed in (1, 2)]
    while not all((run / "metrics.jsonl").exists() for run in runs):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert f"0 of 2 trials are done; resume it with: ordsmed finetune {tmp_path}/out" in " ".join(said.split())
    for folder in (*runs, tmp_path / "out"):
        assert Run(folder).status["state"] == "stopped"
    for one in runs:
        assert snapshots.steps(one / "checkpoints")[-1] == Run(one).status["step"]
        assert settings.read(one / "recipe.toml")["layout"]["threads"] == 1
