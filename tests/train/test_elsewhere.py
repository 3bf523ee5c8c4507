"""Runs from another folder than that in which they began: what they name is found, also when all of it was moved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kit.task_files import task_files
from ordsmed.base import run
from ordsmed.base.errors import DataError
from ordsmed.base.run import Run
from ordsmed.tell.show.show import show
from ordsmed.train import checkpoint
from ordsmed.train.finetune.finetune import finetune
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.use.predict import evaluate
from ordsmed.weights import card
from ordsmed.weights.trained_model import open_model

NETWORK = """[layout]
device = "cpu"
threads = 1
[model]
kind = "bert"
width = 32
layers = 2
heads = 2
positions = 64
"""
PHASE = "[[phase]]\nsteps = 4\nlength = 32\nbatch = 8\nrate = 2e-3\n"
long = pytest.mark.long


@pytest.fixture(autouse=True)
def _no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)


@pytest.fixture
def project(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with data and recipes, in which one stands."""
    folder = tmp_path / "project"
    shutil.copytree(store, folder / "data" / "store")
    (folder / "data" / "store" / "recipe.toml").write_text('corpus = "none"\ntokenizer = "none"\n')
    task_files(folder / "task")
    (folder / "mine.toml").write_text(
        f'data = "data/store"\nsave = 2\nvalidate = 2\nvalidation_rows = 8\n{NETWORK}[objective]\nkind = "mlm"\n{PHASE}'
    )
    (folder / "tags.toml").write_text(
        'steps = 4\nbatch = 8\nsave = 2\nkeep = 9\nfeatures = "kept"\ntokenizer = "task/vocab.txt"\n'
        f'{NETWORK}[task]\nkind = "classify"\ntrain = "task/train.tsv"\ndev = "task/dev.tsv"\nlength = 24\n'
    )
    monkeypatch.chdir(folder)
    return folder


def undone(folder: Path) -> None:
    """As if it had been killed before its last checkpoint."""
    last = checkpoint.steps(folder / "checkpoints")[-1]
    shutil.rmtree(folder / "checkpoints" / f"step-{last:09d}")
    shutil.rmtree(folder / "weights")
    Run(folder).set(state="running")


@long
@pytest.mark.parametrize("moved", ["not", "project", "run", "old", "linked"])
def test_a_pretraining_goes_on(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project / pretrain("mine.toml")
    undone(folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    if moved == "project":  # all of it
        project.rename(tmp_path / "archive")
        folder = tmp_path / "archive/work/pretrain/mine"
    elif moved == "run":  # alone
        folder = folder.rename(tmp_path / "run")
    elif moved == "old":  # of a version that noted nothing
        Run(folder).set(stood_in=None, folder=None)
    elif moved == "linked":
        (tmp_path / "disk").mkdir()
        (project / "work").rename(tmp_path / "disk/work")
        (project / "work").symlink_to(tmp_path / "disk/work")
    name = os.path.relpath(folder)
    assert any(line.startswith("data: data/store, ") for line in show(name))
    pretrain(name)
    assert "resumed from" in capsys.readouterr().err
    assert Run(folder).status["state"] == "done"
    assert open_model(name).folder == Path(name)
    assert not list(Path().iterdir())  # nothing was made here


@long
def test_a_run_that_starts_from_another_opens(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pretrain("mine.toml")
    pretrain("mine.toml", [f"init={first}", "out=second"])
    monkeypatch.chdir(tmp_path)
    assert open_model("project/second", 0).step == 0
    third = pretrain("project/mine.toml", ["init=project/second", f"data={project}/data/store", "out=third"])
    assert Run(third).status["state"] == "done"


@long
def test_a_fine_tuning_is_judged_and_goes_on(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / finetune("tags.toml")
    here, _ = evaluate(folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert evaluate(folder)[0] == here
    assert evaluate("../project/work/finetune/tags")[0] == here
    undone(folder)
    finetune(str(folder))
    assert Run(folder).status["state"] == "done"
    assert evaluate(folder)[0] == here
    alone = shutil.copytree(project / "work", tmp_path / "mounted/work") / "finetune/tags"  # without its data
    assert evaluate(alone)[0] == here
    (project / "task").rename(tmp_path / "data")
    with pytest.raises(DataError, match=r"tags: its dev file task/dev\.tsv is neither next to it nor .*tags FILE`"):
        evaluate(alone)
    assert evaluate(alone, [str(tmp_path / "data/dev.tsv")])[0] == here
    (tmp_path / "data").rename(project / "task")
    assert any(line.startswith("task.dev: task/dev.tsv, ") for line in show(str(folder)))
    assert "`dev.tsv`" in card.write(open_model(folder), "x")
    assert not list(Path().iterdir())
    with pytest.raises(DataError, match="no such file"):  # what is named here stands here
        evaluate(folder, ["task/dev.tsv"])


@long
def test_trials_go_on(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project / finetune("tags.toml", ["seeds=[1]"])
    shutil.rmtree(folder / "trials" / "seed-1")
    monkeypatch.chdir(tmp_path)
    finetune(str(folder))
    assert Run(folder / "trials" / "seed-1").status["state"] == "done"
    assert evaluate(folder)[0]


def test_names_that_are_no_folder_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain").mkdir()
    for name in ("tiny/bert", "plain", "nothing.toml"):
        with run.in_start_folder(name) as own:
            assert (own, Path.cwd()) == (name, tmp_path)


def test_where_a_folder_is_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, stood, called, wanted in (
        ("a/work/x", f"{tmp_path}/a", "work/x", "a"),
        ("b/work/x", f"{tmp_path}/gone", "work/x", "b"),  # moved with what it names
        ("c/x", f"{tmp_path}/a", "work/x", "a"),  # moved alone
        ("c/y", f"{tmp_path}/gone", "work/x", None),
        ("d/work/pretrain/x", None, None, "d"),  # older
        ("d/other/x", None, None, None),
        ("e/x", f"{tmp_path}/a", f"{tmp_path}/e/x", "a"),  # `out` was absolute
    ):
        Path(name).mkdir(parents=True)
        Run(Path(name)).set(verb="pretrain", stood_in=stood, folder=called)
        assert Run(Path(name)).home == (tmp_path / wanted if wanted else None), name
