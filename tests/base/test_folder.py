"""What stands at a path is told by what lies in it, in one place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ordsmed.base import folder as folders
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.folder import VERBS, FolderKind, kind_of_folder, read_status


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, FolderKind.FOREIGN),
        ({"tokenizer.json": "{}"}, FolderKind.FOREIGN),
        ({"trials.toml": ""}, FolderKind.FOREIGN),
        ({"settings.toml": ""}, FolderKind.FOREIGN),
        ({"model.safetensors": ""}, FolderKind.FOREIGN),
        ({"status.json": "{}"}, FolderKind.FOREIGN),
        ({"config.json": "{}", "model.safetensors": ""}, FolderKind.HUGGING_FACE),
        ({"settings.toml": "", "model.safetensors": "", "config.json": "{}"}, FolderKind.IMPORT),
        ({"status.json": '{"verb": "finetune"}', "trials.toml": ""}, FolderKind.TRIALS),
        ({"status.json": '{"verb": "pretrain"}', "trials.toml": ""}, FolderKind.TRIALS),
        ({"status.json": '{"verb": "pretrain"}'}, FolderKind.PRETRAINING),
        ({"status.json": '{"verb": "corpus"}', "config.json": "{}"}, FolderKind.CORPUS),
        ({"status.json": '{"verb": "bake"}'}, FolderKind.OTHER_VERB),
        ({"status.json": '{"state": "done"}'}, FolderKind.OTHER_VERB),
    ],
)
def test_a_folder_is_known_by_its_files(tmp_path: Path, files: dict[str, str], kind: FolderKind) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert kind_of_folder(tmp_path) is kind
    assert kind.made == any("verb" in text or "state" in text for text in files.values())


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_made_is_of_its_kind(tmp_path: Path, verb: str) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"verb": verb, "state": "running"}))
    kind = kind_of_folder(str(tmp_path))
    assert (kind.value, kind.made, kind.run) == (verb, True, verb in ("pretrain", "finetune"))
    assert kind.model == kind.run


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    found = [kind_of_folder(tmp_path / name) for name in ("a.toml", "b")]
    assert found == [FolderKind.FILE, FolderKind.ABSENT]
    assert not any(kind.made or kind.model for kind in found)


def test_models_are_opened_from_these() -> None:
    assert [kind.name for kind in FolderKind if kind.model] == [
        "PRETRAINING",
        "FINETUNING",
        "TRIALS",
        "IMPORT",
        "HUGGING_FACE",
    ]


def test_a_damaged_status_is_told_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / folders.STATUS).write_text("{")
    with pytest.raises(OrdsmedError, match=r"status\.json"):
        kind_of_folder(tmp_path)


@pytest.mark.parametrize(
    "facts",
    [
        {"verb": 3},
        {"stood_in": [1]},
        {"folder": None},
        {"layouts": 1.5},
        {"layouts": [0]},
        {"layouts": [{"processes": "x"}]},
        {"layouts": [{"processes": -1}]},
        {"layouts": [{"processes": 0}]},
    ],
)
def test_a_status_that_is_damaged_is_named(facts: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"verb": "pretrain", **facts}))
    with pytest.raises(DataError, match=rf"status\.json: {next(iter(facts))}: found .*the file is damaged"):
        read_status(tmp_path)
