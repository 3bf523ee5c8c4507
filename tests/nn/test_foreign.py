"""Folders of other programs: impossible sizes, padding rows, the location of a second network, heads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kit.families import WORDS, Signs, hub_folder, masked, shaken
from ordsmed.base.errors import DataError
from ordsmed.learn.objectives import clm, rtd
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert, electra, gpt2
from ordsmed.weights import foreign, weights
from ordsmed.weights.hub_files import config, tensors

SHAPE: dict[str, Any] = {"width": 32, "layers": 2, "heads": 2, "positions": 40, "inner": 48}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return hub_folder(shaken(masked(bert.Bert(**SHAPE))), tmp_path / "hub")


def change(folder: Path, **config: Any) -> None:
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **config}))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"num_hidden_layers": 400}, "describes 400 layers of width 32, 48 inside"),
        ({"hidden_size": 3200}, "describes 2 layers of width 3200, 48 inside"),
        ({"intermediate_size": 48_000}, "describes 2 layers of width 32, 48000 inside"),
        ({"max_position_embeddings": 40_000}, "and 40000 positions"),
        ({"type_vocab_size": 40_000}, "describes 2 layers of width 32"),
    ],
)
def test_sizes_that_the_weights_beside_them_cannot_have(folder: Path, config: dict[str, int], told: str) -> None:
    held = (folder / "model.safetensors").stat().st_size
    assert foreign.settings(folder).layers == 2
    change(folder, **config)
    with pytest.raises(DataError, match=rf"{told}.*; wanted a network that fits {held:,} bytes"):
        foreign.settings(folder)


@pytest.mark.parametrize(
    ("rows", "fits"), [(WORDS, True), (104, True), (1120, True), (96, False), (100, True), (1121, False)]
)
def test_how_many_rows_may_stand_behind_the_vocabulary(
    folder: Path, rows: int, fits: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer than 1,024, where the folder has no vocabulary of its own."""
    if rows > WORDS:
        held = weights.read(folder / "model.safetensors")
        for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
            spare = torch.ones(rows - WORDS, *held[name].shape[1:])
            held[name] = torch.cat([held[name], spare])
        weights.write(folder / "model.safetensors", held)
    change(folder, vocab_size=rows)
    objective = masked(foreign.settings(folder))
    if fits:
        foreign.load_into(objective, folder, Signs())
        assert objective.model.words.weight.shape == (WORDS, 32)
        told = f"{folder}: {rows - WORDS:,} rows after the vocabulary are padding and are dropped"
        assert (told in "".join(capsys.readouterr())) == (rows > WORDS)
    else:
        with pytest.raises(DataError, match=rf"has {rows} token rows, but the tokenizer has {WORDS} tokens; wanted"):
            foreign.load_into(objective, folder, Signs())


def test_where_a_generator_stands(tmp_path: Path) -> None:
    torch.manual_seed(1)
    family = electra.Electra(**SHAPE)
    made = shaken(rtd.Rtd(share="none").build(family, Signs()))  # type: ignore[arg-type]
    folder = tmp_path / "my-discriminator"
    for name, network in made.networks().items():
        at = folder if not name else tmp_path / f"my-{name}"
        at.mkdir()
        (at / "config.json").write_text(json.dumps(config(network, Signs())))
        weights.write(at / "model.safetensors", tensors(network))
    assert foreign.beside(folder, "") == folder
    assert foreign.beside(folder, "generator") == tmp_path / "my-generator"
    again = rtd.Rtd(share="none").build(family, Signs())  # type: ignore[arg-type]
    foreign.load_into(again, folder, Signs())
    wanted, found = (own_tensors(one) for one in (made, again))
    assert all(torch.equal(wanted[name], tensor) for name, tensor in found.items())
    (tmp_path / "my-generator").rename(folder / "generator")
    assert foreign.beside(folder, "generator") == folder / "generator"
    (folder / "generator" / "config.json").unlink()
    with pytest.raises(DataError, match=r"has no generator next to it; wanted .*generator or .*my-generator; put"):
        foreign.beside(folder, "generator")


def test_what_a_network_begins_with_in_a_folder(folder: Path) -> None:
    """The settings as they were, its class, its tokenizer."""
    family = foreign.settings(folder)
    assert family == bert.Bert(**SHAPE)
    assert foreign.classes(folder) == ["BertForMaskedLM"]
    assert foreign.task_of(folder) is None
    assert not foreign.is_imported(folder)
    assert foreign.tokenizer_of(folder) == folder
    causal = clm.Clm().build(gpt2.Gpt2(**SHAPE), Signs())  # type: ignore[arg-type]
    at = hub_folder(causal, folder.parent / "gpt")
    assert foreign.settings(at) == gpt2.Gpt2(**SHAPE)


@pytest.mark.parametrize("count", [0, -1, 1_000_000, 2.0, "2", True])
def test_numbers_of_labels_that_cannot_be(folder: Path, count: Any) -> None:
    change(folder, architectures=["BertForSequenceClassification"], num_labels=count)
    if count == 0:  # as transformers: none is two
        assert foreign.task_of(folder) == ("classify", ("LABEL_0", "LABEL_1"), False)
    elif count is True:
        assert foreign.task_of(folder) == ("classify", (), True)
    else:
        with pytest.raises(DataError, match=r"num_labels: found .*; wanted a whole number, 1 or more"):
            foreign.task_of(folder)


@pytest.mark.parametrize(("length", "told"), [(59, "x" * 59), (60, "x" * 57 + "..."), (500, "x" * 57 + "...")])
def test_long_values_are_cut_short(folder: Path, length: int, told: str) -> None:
    change(folder, model_type="x" * length)
    with pytest.raises(DataError, match=rf"model_type: found {told.replace('.', '[.]')}(;|$)"):
        foreign.settings(folder)


@pytest.mark.parametrize(
    ("text", "said"), [("[1]", r"found \[1\]; wanted a table"), ("null", "found null; wanted a table")]
)
def test_no_table(folder: Path, text: str, said: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(DataError, match=said):
        foreign.settings(folder)
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"has no config.json; wanted a run, or a folder"):
        foreign.settings(folder)
