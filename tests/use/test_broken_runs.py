"""Files of a run, an import or another format that are damaged: one line that names the file, never a traceback."""

from __future__ import annotations

import json

import pytest
import torch

from kit import elmo_files
from kit.makers import make_store
from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.learn.objectives import mlm
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights import weights
from ordsmed.weights.export import export
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

TEXTS = ["[1]", "null", "", "{", "7", '"x"', "[[1]]", "[" * 100_000]
RECIPE = """
data = "store"
model = { kind = "bert", width = 16, layers = 1, heads = 2, positions = 32 }
objective = "mlm"
[[phase]]
steps = 2
"""


@pytest.fixture
def run(tmp_path):
    """A finished run, as far as opening asks."""
    store, folder = make_store(tmp_path / "store", documents=4), tmp_path / "run"
    tokenizer = Tokenizer.load(store / "tokenizer")
    model = bert.Bert(width=16, layers=1, heads=2, positions=32)
    objective = mlm.Mlm().build(model, tokenizer)
    (folder / "weights").mkdir(parents=True)
    weights.write(folder / "weights/model.safetensors", own_tensors(objective))
    files.write_text(folder / "weights/settings.toml", settings.write({"model": model, "objective": mlm.Mlm()}))
    tokenizer.save(folder / "weights/tokenizer")
    files.write_text(folder / "recipe.toml", RECIPE)
    for name, facts in (
        ("status", {"verb": "pretrain", "state": "done", "step": 2}),
        ("environment", {"ordsmed": "0"}),
        ("scores", {"step": 2, "validation": 5.0, "mlm": 5.0, "unigram": 5.1}),
        ("data", {"store": {"title": "Mine"}}),
    ):
        files.write_json(folder / f"{name}.json", facts)
    return folder


def said_of(asked, *inputs):
    """The line of a refusal."""
    with pytest.raises(OrdsmedError) as caught:
        asked(*inputs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["status", "environment", "scores", "data"])
def test_a_runs_json_that_is_damaged_is_named(run, tmp_path, name):
    assert export(run, tmp_path / "out")
    for text in TEXTS:
        (run / f"{name}.json").write_text(text)
        assert f"{run}/{name}.json: " in said_of(export, run, tmp_path / "out")
    (run / f"{name}.json").write_bytes(b"\xff{}")
    assert f"{run}/{name}.json: not JSON" in said_of(export, run, tmp_path / "out")


def test_what_no_run_wrote_is_told_with_where_it_may_stand(run, tmp_path):
    assert "status.json: step: found 'x'" in change(run, "status", "step", "x", lambda: said_of(open_model, run))
    for name, key, value in (
        ("data", "store", {"title": "x", "train": {"documents": "many"}}),
        ("data", "store", 7),
        ("scores", "guessing", "much"),
    ):
        told = change(run, name, key, value, lambda: said_of(export, run, tmp_path / "out"))
        assert f"{run}: data.json, scores.json or metrics.jsonl were not" in told
        assert "move them away" in told
    for name in ("data", "scores", "environment"):
        (run / f"{name}.json").unlink()
    assert export(run, tmp_path / "out")


def change(run, name, key, value, asked):
    path = run / f"{name}.json"
    was = path.read_text()
    path.write_text(json.dumps({**json.loads(was), key: value}))
    try:
        return asked()
    finally:
        path.write_text(was)


def test_weights_of_a_run_that_are_no_numbers_are_refused(run):
    path = run / "weights/model.safetensors"
    held = weights.read(path)
    held["model.blocks.0.up.weight"][0, 0] = torch.nan
    weights.write(path, held)
    assert "model.blocks.0.up.weight: 1 of 1,024 numbers are NaN or infinite" in said_of(open_model, run)


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("width = 16", "width = 160000000", "describes 1 layers of width 160000000, .* and 32 positions; wanted a net"),
        ("positions = 32", "positions = 32000000000", "and 32000000000 positions; wanted a network that fits"),
        ("types = 2", "types = 2000000000", "wanted a network that fits [0-9,]+ bytes of weights; make or import"),
        ("layers = 1", "layers = 1000000000", "describes 1000000000 layers"),
        ("[model]", "[modle]", r"has no \[model\]"),
    ],
)
def test_settings_that_its_weights_cannot_have_are_refused_before_anything_is_made(run, was, now, said):
    path = run / "weights/settings.toml"
    path.write_text(path.read_text().replace(was, now))
    (run / "recipe.toml").unlink()  # taken away from its run, or an import
    with pytest.raises(DataError, match=rf"settings\.toml: .*{said}"):
        open_model(run / "weights")


def test_a_tokenizers_files_that_are_damaged_are_named(run):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = run / "weights/tokenizer" / name
        was = path.read_text()
        for text in TEXTS:
            path.write_text(text)
            assert f"{name}: " in said_of(open_model, run)
        path.write_text(was)


@pytest.mark.parametrize(
    ("table", "key", "value", "said"),
    [
        ("lstm", "dim", 10**12, "dim: found 1000.*wanted a size that fits"),
        ("lstm", "n_layers", 10**9, "n_layers: found"),
        ("lstm", "projection_dim", 2.5, "width: found 2.5"),
        ("lstm", "dim", None, "cells: found"),
        ("char_cnn", "filters", [[1, 10**20]], "filters: found"),
        ("char_cnn", "filters", "x", "filters: found 'x'"),
        ("char_cnn", "embedding", [1], r"no `char_cnn\.embedding\.dim`"),
        ("char_cnn", "n_highway", -1, "highways"),
    ],
)
def test_options_of_an_elmo_that_cannot_be_are_named(tmp_path, table, key, value, said):
    asked = elmo_files.options()
    folder = elmo_files.write(tmp_path / "theirs", asked, elmo_files.arrays(asked))
    told = json.loads((folder / "options.json").read_text())
    told[table][key] = value
    (folder / "options.json").write_text(json.dumps(told))
    with pytest.raises(OrdsmedError, match=rf"options\.json.*{said}"):
        take_over(folder, tmp_path / "ours")


@pytest.mark.long
def test_an_elmo_that_is_no_numbers_is_refused(tmp_path):
    asked = elmo_files.options()
    arrays = elmo_files.arrays(asked)
    name = next(iter(arrays))
    arrays[name].flat[0] = float("nan")
    folder = elmo_files.write(tmp_path / "theirs", asked, arrays)
    with pytest.raises(DataError, match=f"{name}: 1 of .* numbers are NaN or infinite"):
        take_over(folder, tmp_path / "ours")
    for text in TEXTS:
        (folder / "options.json").write_text(text)
        assert "options.json: " in said_of(take_over, folder, tmp_path / "ours")
