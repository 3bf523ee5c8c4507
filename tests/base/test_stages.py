"""A folder of `make` stands for the stage of it that is wanted; one without a model says which command continues it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed.base import hub, stages
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.cli import main
from ordsmed.weights.origin import Origin

REQUEST = {
    "texts": ["my texts", "b"],
    "out": "my model",
    "hours": 0.5,
    "purpose": "search",
    "kind": "bert",
    "start": "",
    "devices": 0,
    "site": "",
    "title": "It's mine",
}


@pytest.fixture
def made(tiny_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `make --for search` leaves it: the stages are runs of the kind that it makes."""
    monkeypatch.chdir(tmp_path)
    folder = Path("my model")
    for name, stage in (("corpus", "corpus"), ("data", "encode-bert"), ("model", "bert"), ("dense", "bert")):
        shutil.copytree(tiny_run.folder / stage, folder / name)
    status(folder, state="done")
    return folder


def status(folder: Path, **facts: object) -> None:
    facts = {"verb": "make", "request": REQUEST, "stood_in": str(Path.cwd()), "folder": str(folder), **facts}
    (folder / "status.json").write_text(json.dumps(facts))


def test_the_first_stage_that_stands_is_taken(made: Path) -> None:
    assert kind_of_folder(made) is FolderKind.MAKE
    assert stages.stage(made, "dense", "model") == "my model/dense"
    assert stages.stage(made, "cross", "model") == "my model/model"
    assert stages.stage(made, "cross") == str(made)
    assert stages.stage("./my model/model/", "corpus") == "./my model/model/", "what is none stays as it is written"
    assert stages.stage("http://host/name", "model") == "http://host/name"
    assert hub.folder(made) == made / "model"
    (made / "status.json").unlink()
    assert stages.stage(made, "dense", "model") == str(made), "of another folder no folder inside is taken"


def test_verbs_take_the_folder_as_the_model(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted, found = ordsmed.open(made / "model"), ordsmed.open(str(made))
    assert (found.folder, found.step) == (wanted.folder, wanted.step)
    text = "The [MASK] is here."
    assert found.fill(text) == wanted.fill(text)
    Path("texts.txt").write_text("the river is old\nthe bridge is new\n")
    for words in (
        ["fill", "my model", text],
        ["generate", "my model", "The", "--tokens", "2"],
        ["surprisal", "my model", "the river"],
        ["evaluate", "my model", "--probe", "pseudo_perplexity", "texts.txt", "--max-unknown", "1"],
        ["embed", "my model", "texts.txt", "vectors.npz", "--of", "sentences"],
        ["export", "my model", "exported"],
        ["index", "my model", "my model", "indexed"],
        ["search", "indexed", "the river"],
        ["encode", "folder-wordpiece", "corpus=my model", "tokenizer=my model", "out=ids"],
        ["pretrain", "my model"],
        ["pretrain", "my model", "--dry-run"],
        ["show", "my model", "--step", "1"],
        ["show", "my model", "my model/dense"],
    ):
        main(words)
        assert capsys.readouterr().out, words
    assert json.loads(Path("exported/ordsmed.json").read_text())["of"] == "my model/model"
    assert 'model = "my model/dense"' in Path("indexed/recipe.toml").read_text()
    assert Origin.of("my model", key="init").folder == made / "model"
    with pytest.raises(SystemExit):
        main(["finetune", "my model"])
    assert "`ordsmed finetune TASK 'init=my model'` trains it for a task" in capsys.readouterr().err
    with pytest.raises(RecipeError, match=r"^my model: is not an index, but make; wanted a folder of `ordsmed index`"):
        ordsmed.open_index("my model")


def test_show_has_all_stages(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "cross.toml").write_text("")
    (made / "report.html").write_text("")
    main(["show", "my model"])
    shown = capsys.readouterr().out
    assert shown.startswith("my model: make\nstate: done\n")
    for line in (r"  texts: my texts b", "  hours: 0.5", "  data (token ids)  ", "loss ", "(guessing "):
        assert line in shown
    stand = {line.split()[0]: line for line in shown.splitlines() if line.startswith("  ") and ": " not in line[:14]}
    assert stand["cross"].endswith("not started")
    assert "documents" in stand["corpus"]
    assert stand["report.html"].endswith("done")
    assert shown.endswith("more of a stage:\n    ordsmed show 'my model/model'\n")
    status(made, state="running")
    main(["show", "my model"])
    shown = capsys.readouterr().out
    assert "state: not finished\n" in shown
    assert shown.splitlines()[-2:] == ["to continue:", f"    {stages.resume_command(made)}"]


def test_without_a_model_it_says_which_command_continues_it(made: Path, tmp_path: Path) -> None:
    shutil.rmtree(made / "model")
    status(made, state="running")
    again = "ordsmed make 'my texts' b 'my model' --hours 0.5 --for search --kind bert --title \"It's mine\""
    assert stages.resume_command(made) == again
    with pytest.raises(RecipeError) as refused:
        ordsmed.open("my model")
    assert str(refused.value).startswith("my model: is the folder of a `make` that has no model yet; wanted ")
    assert str(refused.value).endswith(f"; `{again}` continues it")
    (tmp_path / "else where").mkdir()
    status(made, state="running", stood_in=str(tmp_path / "else where"))
    assert stages.resume_command(made) == f"cd '{tmp_path}/else where' && {again}"
    assert shlex.split(stages.resume_command(made))[:3] == ["cd", f"{tmp_path}/else where", "&&"]


def test_an_unfinished_model_names_the_command_of_the_whole(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made / "model/status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"state": "stopped"}))
    status(made, state="running")
    told = Origin.of("my model").unfinished()
    assert told.endswith(f"it was stopped; `{stages.resume_command(made)}` resumes it")
    shutil.rmtree(made / "model/checkpoints")
    with pytest.raises(RecipeError, match=r"no checkpoint yet; `cd .* && ordsmed make .*` resumes it"):
        ordsmed.open("my model")


def test_a_damaged_request_is_told(made: Path) -> None:
    status(made, request=["x"])
    with pytest.raises(DataError, match=r"request: found .*the file is damaged"):
        ordsmed.open("my model")
