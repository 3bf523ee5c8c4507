"""Folders of sentence-transformers, without it: what is refused, and what files and card say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import ordsmed
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.cli import main
from ordsmed.weights import weights
from ordsmed.weights.export import export, readers


def test_the_folder_holds_the_network_alone_and_says_how_it_is_used(tiny_run: Any, tmp_path: Path) -> None:
    out = export(tiny_run.bert, tmp_path / "out", to="sentence-transformers", overrides=["query=q: ", "length=20"])
    modules = json.loads((out / "modules.json").read_text())
    assert [(module["type"].rpartition(".")[2], module["path"]) for module in modules] == [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        ("Normalize", "2_Normalize"),
    ]
    assert json.loads((out / "config.json").read_text())["architectures"] == ["BertModel"]
    assert not [name for name in weights.read(out / "model.safetensors") if name.startswith("cls.")]
    assert json.loads((out / "1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"] is True
    assert json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"] == 20
    how = json.loads((out / "config_sentence_transformers.json").read_text())
    assert how["prompts"] == {"query": "q: ", "document": ""}
    card = (out / "README.md").read_text()
    for line in ("library_name: sentence-transformers", "pipeline_tag: sentence-similarity", '- "feature-extraction"'):
        assert line in card.split("---")[1]
    assert "SentenceTransformer('out')" in card
    assert readers(out) == "sentence-transformers loads it"


OPENED = {
    "open": lambda folder, out: ordsmed.open(folder, device="cpu"),
    "init": lambda folder, out: ordsmed.pretrain("tiny/bert", init=folder, out=out, steps=4),
    "import": lambda folder, out: main(["import", str(folder), str(out)]),
    "index": lambda folder, out: ordsmed.index(folder, folder / "README.md", out),
    "export": lambda folder, out: export(folder, out, to="huggingface"),
}


@pytest.mark.parametrize("way", OPENED)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("modules", r"modules\.json: names custom code \(mine\.Mine\), which is never run; wanted modules of"),
        ("auto_map", r"config\.json: names custom code \(auto_map, .*mine\.Mine.*\), which is never run"),
    ],
)
def test_a_folder_with_code_is_refused(
    tiny_run: Any, tmp_path: Path, way: str, damage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(tiny_run.bert, tmp_path / "theirs", to="sentence-transformers")
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine: pass\n")
    if damage == "modules":
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "modules.json").write_text(json.dumps([*modules, {"idx": 9, "path": "", "type": "mine.Mine"}]))
    else:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "mine.Mine"}}))
    with pytest.raises((OrdsmedError, SystemExit)) as caught:
        OPENED[way](folder, tmp_path / "out")
    told = capsys.readouterr().err if isinstance(caught.value, SystemExit) else str(caught.value)
    assert re.search(message, told), told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "ran").exists()


CODE = {"auto_map": {"AutoModel": "mine.Mine"}}


def with_code(folder: Path, **changes: Any) -> Path:
    """A plain folder that names custom code."""
    (folder / "mine.py").write_text("raise SystemExit('ran')\n")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | CODE | changes))
    return folder


def test_code_beside_a_known_class_stays_out_and_is_told(
    tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = export(tiny_run.bert, tmp_path / "theirs", to="huggingface")
    before = ordsmed.open(folder, device="cpu").embed("a dog").vectors
    assert "auto_map" not in capsys.readouterr().err
    after = ordsmed.open(with_code(folder), device="cpu").embed("a dog").vectors
    assert (after == before).all()
    told = r"config\.json: its code \(auto_map, .*mine\.Mine.*\) is never run; read as BertForMaskedLM"
    assert len(re.findall(told, capsys.readouterr().err)) == 1


@pytest.mark.parametrize("way", OPENED)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["MineForMaskedLM"]},
            r"\(auto_map, .*\) for MineForMaskedLM, which is never run; wanted a class",
        ),
        ({"architectures": None}, r"\(auto_map, .*\) for no known class, which is never run; wanted a class of"),
        ({"model_type": "mine"}, r"model_type: found mine, whose code \(auto_map, .*mine\.Mine.*\) is never run"),
    ],
)
def test_code_for_another_network_is_refused(
    tiny_run: Any, tmp_path: Path, way: str, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_code(export(tiny_run.bert, tmp_path / "theirs", to="huggingface"), **changes)
    capsys.readouterr()
    with pytest.raises((OrdsmedError, SystemExit)) as caught:
        OPENED[way](folder, tmp_path / "out")
    told = capsys.readouterr().err if isinstance(caught.value, SystemExit) else str(caught.value)
    assert re.search(message, told), told
    assert len(told.strip().splitlines()) == 1


def test_a_folder_of_its_own_modules_opens(tiny_run: Any, tmp_path: Path) -> None:
    folder = export(tiny_run.bert, tmp_path / "theirs", to="sentence-transformers")
    (folder / "modules.json").write_text("{}")
    with pytest.raises(OrdsmedError, match=r"modules\.json: found .*wanted a list of modules"):
        ordsmed.open(folder, device="cpu")
    (folder / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    assert ordsmed.open(folder, device="cpu").embed("a", of="sentences").vectors.any()


def test_a_setting_of_hugging_face_is_heeded(tiny_run: Any, tmp_path: Path) -> None:
    for name, changes in (("with", []), ("without", ["start=false"])):
        export(tiny_run.gpt2, tmp_path / name, to="huggingface", overrides=changes)
    kept = [json.loads((tmp_path / name / "tokenizer_config.json").read_text()) for name in ("with", "without")]
    assert [table["add_bos_token"] for table in kept] == [True, False]


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        (
            "gpt2",
            ["pool=first"],
            "--set pool: found first, but the first token of a gpt2 attends to no other; wanted last",
        ),
        ("bert", ["length=1"], "--to: length: found 1; wanted 2 or more, or 0"),
        ("bert", ["length=100000"], "--set length: found 100000; wanted at most"),
        ("bert", ["pool=max"], "pool: found 'max'"),
        ("bert", ["prompt=x"], "prompt"),
    ],
)
def test_what_cannot_be_is_refused(tiny_run: Any, tmp_path: Path, run: str, changes: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        export(getattr(tiny_run, run), tmp_path / "out", to="sentence-transformers", overrides=changes)
    assert not (tmp_path / "out").exists()
