"""Names of published models lead to folders by one table, a mirror or the cache; nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordsmed.base import hub
from ordsmed.base.errors import RecipeError

NAME = "google/electra-base-discriminator"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name in ("ORDSMED_MODELS", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_a_folder_is_itself_and_a_name_without_a_table_leads_nowhere(alone: Path) -> None:
    assert hub.folder(made(alone / "mine")) == alone / "mine"
    assert hub.folder(NAME) == Path(NAME)
    assert "there is no models.toml: add" in hub.remedy(NAME)
    assert hub.remedy("/no/such/folder") == ""


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
    assert "does not lead to it" in hub.remedy("google/nobody")


def test_the_cache_is_looked_into(alone: Path) -> None:
    stored = alone / "cache" / "hub" / "models--gpt2"
    made(stored / "refs")
    (stored / "refs" / "main").write_text("abc\n")
    found = made(stored / "snapshots" / "abc")
    assert hub.folder("gpt2") == found
    assert hub.folder("openai-community/gpt2") == found


@pytest.mark.parametrize("text", ["miror = '/x'", "[names]\n'a/b' = 3", "mirror = 4", "names = 'x'"])
def test_a_table_that_cannot_be_is_refused(alone: Path, text: str) -> None:
    (alone / "models.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"models.toml: found|models.toml: .*wanted mirror"):
        hub.folder(NAME)


def test_a_table_that_is_named_and_gone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDSMED_MODELS", "/no/such/models.toml")
    with pytest.raises(RecipeError, match="ORDSMED_MODELS: found /no/such"):
        hub.folder(NAME)
