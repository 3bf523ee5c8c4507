"""Folders of sentence-transformers, without it: what is refused, and what files and card say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.weights import weights
from ordsmed.weights.export import export, readers


def test_the_folder_holds_the_network_alone_and_says_how_it_is_used(tiny_run: Any, tmp_path: Path) -> None:
    out = export(tiny_run.bert, tmp_path / "out", to="sentence-transformers", overrides=["query=q: ", "length=20"])
    modules = json.loads((out / "modules.json").read_text())
    assert [(module["type"].rpartition(".")[2], module["path"]) for module in modules] == [
        ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"),
    ]  # fmt: skip
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


def test_a_setting_of_hugging_face_is_heeded(tiny_run: Any, tmp_path: Path) -> None:
    for name, changes in (("with", []), ("without", ["start=false"])):
        export(tiny_run.gpt2, tmp_path / name, to="huggingface", overrides=changes)
    kept = [json.loads((tmp_path / name / "tokenizer_config.json").read_text()) for name in ("with", "without")]
    assert [table["add_bos_token"] for table in kept] == [True, False]


@pytest.mark.parametrize(
    ("run", "changes", "message"),
    [
        ("gpt2", ["pool=first"], "--set pool: found first; the first token of a gpt2 sees no other; wanted last"),
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
