"""Names of published models lead to folders by one table, a mirror or the cache; nowhere else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from kit.makers import digest_of
from ordsmed.base import hub
from ordsmed.base.errors import RecipeError

NAME = "google/electra-base-discriminator"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name in ("ORDSMED_MODELS", "ORDSMED_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_a_folder_is_itself_and_a_name_without_a_table_leads_nowhere(alone: Path) -> None:
    assert hub.folder(made(alone / "mine")) == alone / "mine"
    assert hub.folder(NAME) == Path(NAME)
    assert "there is no models.toml: add" in hub.remedy(NAME)
    assert "models.toml" not in hub.remedy("/no/such/folder")


def test_a_name_that_leads_nowhere_leads_to_what_is_near(alone: Path) -> None:
    assert hub.remedy("RUN") == "`ordsmed recipes` lists recipes"
    assert hub.remedy("tiny/bert") == "a recipe has this name: `ordsmed pretrain tiny/bert` makes the run"
    assert hub.remedy("electra-small") == "a recipe has this name: `ordsmed pretrain electra-small` makes the run"
    assert hub.remedy("tiny/questions") == "a recipe has this name: `ordsmed finetune tiny/questions` makes the run"
    run, task = made(alone / "work/pretrain/tiny-bert"), made(alone / "work/finetune/my-squad")
    made(alone / "models/their-elmo")
    assert hub.remedy("tiny/bert") == hub.remedy("pretrain/tiny/bert") == "did you mean `work/pretrain/tiny-bert`?"
    assert hub.remedy("tiny-bret") == "did you mean `work/pretrain/tiny-bert`?"
    assert hub.remedy("work/pretrain/tiny-brt") == "did you mean `work/pretrain/tiny-bert`?"
    assert hub.remedy("my-squat") == "did you mean `work/finetune/my-squad`?"
    assert hub.remedy("models/their-elmoo") == "did you mean `models/their-elmo`?"
    assert hub.remedy(alone / "models" / "their-emlo") == f"did you mean `{alone}/models/their-elmo`?"
    assert "did you mean" not in hub.remedy("/no/such/tiny-bert"), "another place is meant"
    there = "there are: work/pretrain/tiny-bert, work/finetune/my-squad; `ordsmed recipes` lists recipes"
    assert hub.remedy("RUN") == hub.remedy("nothere") == hub.remedy("work/elsewhere") == there
    assert run.is_dir()
    assert task.is_dir()
    for name in ("second", "third"):
        made(alone / "work/pretrain" / name)
    assert ", work/finetune/my-squad; " in hub.remedy("RUN"), "four are all told"
    made(alone / "work/finetune/a-fifth")
    assert ", work/finetune/a-fifth ...; " in hub.remedy("RUN")


@pytest.mark.parametrize("name", ["bert-base-cased", "gpt2", "somebody/bort", "google/electra-base-discriminator"])
def test_only_what_looks_published_leads_to_the_table(alone: Path, name: str) -> None:
    assert hub.remedy(name).startswith("there is no models.toml: add")
    (alone / "models.toml").write_text("mirror = 'hub'\n")
    assert hub.remedy(name).startswith("models.toml has no such name: add")
    for other in ("a b/c", "a/b/c", "~/x", "../x/y", "x/", "bert"):
        assert "models.toml" not in hub.remedy(other)


def test_the_table_names_folders_and_a_mirror(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = made(alone / "elsewhere" / "electra")
    other = made(alone / "hub" / "google-bert" / "bert-base-uncased")
    table = made(alone / "conf") / "models.toml"
    table.write_text(f'mirror = "../hub"\n[names]\n"{NAME}" = "{there}"\n')
    monkeypatch.setenv("ORDSMED_MODELS", str(table))
    assert hub.folder(NAME) == there
    assert hub.folder("google-bert/bert-base-uncased").resolve() == other
    assert hub.folder("bert-base-uncased").resolve() == other
    assert not hub.folder("google/nobody").is_dir()
    assert "has no such name" in hub.remedy("google/nobody")


def test_what_was_found_once_is_looked_for_nowhere_else(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, vocabulary = made(alone / "hub" / NAME), alone / "bert-large-uncased-vocab.txt"
    vocabulary.write_text("[PAD]\n")
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"):
        (there / name).write_text("1")
    (alone / "models.toml").write_text(
        f'mirror = "hub"\ncache = "kept"\n[names]\n"bert-large-uncased" = "{vocabulary}"\n'
    )
    made(alone / "kept/models/bert-large-uncased.parts")  # a folder of that stem is not it
    first, listed = hub.folder(NAME), hub.folder("bert-large-uncased")
    assert first == Path("kept/models") / NAME
    assert sorted(path.name for path in first.iterdir()) == ["config.json", "model.safetensors"]  # none twice
    assert listed == Path("kept/models/bert-large-uncased.txt")
    assert f"{Path('hub') / NAME}: copied to kept/models/google" in capsys.readouterr().err
    shutil.rmtree(alone / "hub")
    vocabulary.unlink()
    assert (hub.folder(NAME), hub.folder("bert-large-uncased")) == (first, listed)
    assert hub.folder("google-bert/bert-large-uncased") == listed  # as it is called today
    assert capsys.readouterr().err == ""
    assert hub.cache() == Path("kept")


def test_weights_that_stand_but_once_are_copied(alone: Path) -> None:
    there = made(alone / "hub" / NAME)
    (there / "pytorch_model.bin").write_text("1")
    (alone / "models.toml").write_text('mirror = "hub"\ncache = "kept"\n')
    assert [path.name for path in hub.folder(NAME).iterdir()] == ["pytorch_model.bin"]


def test_the_cache_holds_names_and_no_paths(alone: Path) -> None:
    (alone / "models.toml").write_text('cache = "kept"\n')
    made(alone / "kept/models")
    made(alone / "kept/elsewhere")
    assert hub.folder("../elsewhere") == Path("../elsewhere")


def test_who_waited_for_a_copy_takes_it(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made once, though several processes ask at the same time."""
    (made(alone / "hub" / NAME) / "config.json").write_text("1")
    (alone / "models.toml").write_text('mirror = "hub"\ncache = "kept"\n')

    @contextlib.contextmanager
    def waited(target: Path) -> Iterator[None]:
        (made(target) / "config.json").write_text("another process's")
        yield

    monkeypatch.setattr(hub.run, "locked", waited)
    assert (hub.folder(NAME) / "config.json").read_text() == "another process's"


def test_the_cache_is_looked_into(alone: Path) -> None:
    stored = alone / "cache" / "hub" / "models--gpt2"
    made(stored / "refs")
    (stored / "refs" / "main").write_text("abc\n")
    found = made(stored / "snapshots" / "abc")
    assert hub.folder("gpt2") == found
    assert hub.folder("openai-community/gpt2") == found


@pytest.mark.parametrize("revision", ["", "main", "v1.0", "pr/1", "abc", "def"])
def test_a_revision_is_what_huggingface_hub_takes_it_for(alone: Path, revision: str) -> None:
    stored = alone / "cache" / "hub" / "models--openai-community--gpt2"
    for ref, commit in (("main", "abc"), ("v1.0", "def"), ("pr/1", "gone")):
        (stored / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (stored / "refs" / ref).write_text(commit)
    for commit in ("abc", "def"):
        (made(stored / "snapshots" / commit) / "config.json").write_text("{}")
    theirs = try_to_load_from_cache(
        "openai-community/gpt2", "config.json", cache_dir=alone / "cache" / "hub", revision=revision or None
    )
    name = f"gpt2@{revision}" if revision else "gpt2"
    assert hub.folder(name) == (Path(theirs).parent if theirs else Path(name))
    assert "add `" in hub.remedy(name) if not theirs else True


HUB = """
from huggingface_hub.constants import HF_HUB_CACHE
from ordsmed.base import hub
print(HF_HUB_CACHE == str(hub._hub_cache()), HF_HUB_CACHE)
"""


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"XDG_CACHE_HOME": "/x/cache"},
        {"HF_HOME": "~/hf"},
        {"HF_HOME": "$HOME/hf", "XDG_CACHE_HOME": "/x"},
        {"HF_HUB_CACHE": "/x/hub", "HF_HOME": "/y"},
        {"HUGGINGFACE_HUB_CACHE": "/x/old"},
    ],
)
def test_the_cache_is_where_huggingface_hub_has_it(env: dict[str, str]) -> None:
    usual = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_", "XDG_"))}
    done = subprocess.run([sys.executable, "-c", HUB], env={**usual, **env}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True "), done.stdout


@pytest.mark.parametrize("text", ["miror = '/x'", "[names]\n'a/b' = 3", "mirror = 4", "names = 'x'"])
def test_a_table_that_cannot_be_is_refused(alone: Path, text: str) -> None:
    (alone / "models.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"models.toml: found|models.toml: .*wanted mirror"):
        hub.folder(NAME)


def test_a_table_that_is_named_and_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDSMED_MODELS", "/no/such/models.toml")
    with pytest.raises(RecipeError, match="ORDSMED_MODELS: found /no/such"):
        hub.folder(NAME)


def test_the_names_of_before_lead_to_those_of_today() -> None:
    assert digest_of(hub, "MOVED") == "d615b8ab"
