"""Models of other formats are shown as `import` would take them; nothing is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kit import foreign_files, language_models
from ordsmed import cli
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.tell.show.show import show


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name in ("ORDSMED_MODELS", "ORDSMED_CACHE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_a_checkpoint_of_tensorflow(tmp_path: Path) -> None:
    theirs = foreign_files.google_bert(tmp_path / "bert")
    for name in ("bert", "bert/bert_model.ckpt", str(theirs)):
        told = show(name)
        assert told[0] == f"{name}: google_bert"
        assert {'  kind = "bert"', "  width = 8", "  layers = 2", "  learned: mlm_nsp"} <= set(told)
        assert told[-3:] == [
            "  1,866 numbers",
            "  tokenizer: wordpiece, 40 pieces",
            "  3 tensors of its optimizer are left out",
        ]
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def test_what_files_do_not_tell_is_asked_for() -> None:
    foreign_files.electra(Path("electra"))
    with pytest.raises(RecipeError, match=r"add model\.heads=N"):
        show("electra")
    assert "  learned: rtd" in show("electra", ["model.heads=2"])


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    hub = language_models.hub_folder("bert", tmp_path / "hub_bert")
    told = show("hub_bert")
    assert (told[0], told[1]) == ("hub_bert: huggingface", "  [model]")
    assert told[-1].startswith("  tokenizer: ")
    assert not any("left out" in line for line in told)
    config = json.loads((hub / "config.json").read_text())
    config["architectures"] = ["BertForQuestionAnswering"]
    (hub / "config.json").write_text(json.dumps(config))
    told = show("hub_bert")
    assert "  learned: squad" in told
    assert "unused weights of heads that this model does not have: " in told[-1]
    assert "cls.predictions.transform.dense" in told[-1]
    with pytest.raises(RecipeError, match=r"is a Hugging Face folder, but model.width=3 is given; wanted no override"):
        show("hub_bert", ["model.width=3"])


def test_a_published_name_and_one_that_leads_nowhere(tmp_path: Path) -> None:
    foreign_files.google_bert(tmp_path / "bert")
    listing = {"google/tiny": tmp_path / "bert", "google/list": tmp_path / "bert/vocab.txt"}
    table = "".join(f'"{name}" = "{place}"\n' for name, place in listing.items())
    Path("models.toml").write_text(f"[names]\n{table}")
    assert show("google/tiny")[:2] == ["google/tiny: google_bert", f"  found at {tmp_path / 'bert'}"]
    assert show("google/list") == [
        "google/list: a vocabulary",
        f"  found at {tmp_path / 'bert/vocab.txt'}",
        "  tokenizer: wordpiece, 40 pieces",
    ]
    with pytest.raises(RecipeError, match=r"nobody: is neither a recipe nor a folder; models.toml has no such name"):
        show("google/nobody")
    with pytest.raises(RecipeError, match=r"did you mean `\w*/?tiny"):
        show("tiny/brt")
    (tmp_path / "bert/vocab.txt").unlink()
    with pytest.raises(DataError, match=r"has no vocab\.txt"):
        show("bert")


def test_a_folder_for_what_names_led_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--cache-dir holds it: the second time the first place may be gone."""
    monkeypatch.setenv("ORDSMED_CACHE", "elsewhere")  # the flag comes first; and the test leaves nothing behind
    foreign_files.google_bert(tmp_path / "bert")
    Path("models.toml").write_text(f'[names]\n"google/tiny" = "{tmp_path / "bert"}"\n')
    cli.main(["show", "google/tiny", "--cache-dir", "kept"])
    shutil.rmtree(tmp_path / "bert")
    first = capsys.readouterr().out
    assert f"found at {tmp_path / 'kept/models/google/tiny'}" in first
    cli.main(["show", "google/tiny", "--cache-dir=kept"])
    assert capsys.readouterr().out == first
    assert not Path("elsewhere").exists()
    with pytest.raises(SystemExit, match="2"):
        cli.main(["import", "google/tiny", "out", "--cache-dir", "models.toml"])
    assert "--cache-dir" in capsys.readouterr().err
    cli.main(["import", "google/tiny", "out", "--cache-dir", "kept"])
    assert Path("out/settings.toml").is_file()
