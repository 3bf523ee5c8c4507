"""Foreign formats: ELMo's files in and out, bit for bit; what does not fit is named."""

from __future__ import annotations

import gzip
import json
import shutil
import sys

import numpy as np
import pytest
import torch

from kit import elmo_files
from ordsmed.base import menu
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models.elmo import Elmo
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.export import export
from ordsmed.weights.formats import elmo
from ordsmed.weights.import_folder import recognised
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model


def theirs(folder, seed=0, **changed):
    asked = elmo_files.options(**changed)
    return elmo_files.write(folder, asked, elmo_files.arrays(asked, seed))


def same(one, other):
    return one.keys() == other.keys() and all(
        one[k].tobytes() == other[k].tobytes() and (one[k].dtype, one[k].shape) == (other[k].dtype, other[k].shape)
        for k in one
    )


@pytest.mark.long
@pytest.mark.parametrize("changed", elmo_files.SETS.values(), ids=elmo_files.SETS)
def test_elmo_there_and_back_bit_for_bit(tmp_path, changed, capsys):
    folder = theirs(tmp_path / "theirs", **changed)
    take_over(folder, tmp_path / "ours")
    out = export(tmp_path / "ours", tmp_path / "out")
    assert same(elmo_files.read(folder / "model.hdf5"), elmo_files.read(out / "model.hdf5"))
    was, now = (json.loads((f / "options.json").read_text()) for f in (folder, out))
    was["char_cnn"]["n_characters"] = 262
    assert {part: now[part] for part in was} == was
    assert (out / "vocab.txt").read_text() == "<S>\n</S>\n<UNK>\n"
    assert "simple_elmo" in (out / "README.md").read_text()
    assert capsys.readouterr().err.splitlines() == elmo.unread(open_model(tmp_path / "ours").settings)
    take_over(out / "model.hdf5", tmp_path / "again")
    assert (tmp_path / "again/settings.toml").read_text() == (tmp_path / "ours/settings.toml").read_text()


@pytest.mark.long
def test_the_real_file_comes_back_bit_for_bit(shared_data, tmp_path):
    folder = shared_data / "elmo/model"
    take_over(folder, tmp_path / "ours")
    out = export(tmp_path / "ours", tmp_path / "out")
    assert same(elmo_files.read(folder / "lm_weights.hdf5"), elmo_files.read(out / "model.hdf5"))
    assert open_model(tmp_path / "ours").settings.residual is False


@pytest.mark.long
def test_what_they_say_is_what_we_mean(tmp_path, capsys):
    asked = elmo_files.options(n_highway=1)
    asked |= {"dropout": 0.3, "n_epochs": 10, "all_clip_norm_val": 10.0, "colour": "red"}
    del asked["lstm"]["use_skip_connections"], asked["lstm"]["proj_clip"]
    folder = elmo_files.write(tmp_path / "theirs", asked, elmo_files.arrays(asked), "some_weights.hdf5")
    (folder / "options.json").rename(folder / "some_options.json")  # as they were published
    (folder / "embeddings.hdf5").write_bytes((folder / "some_weights.hdf5").read_bytes()[:40])
    found = elmo.ElmoFormat().read(folder)
    model = found.networks.model
    sizes = (model.width, model.cells, model.layers, model.highways, model.letter, model.longest_word)
    assert sizes == (5, 12, 2, 1, 4, 12)
    assert (model.cell_clip, model.projection_clip, model.residual, model.dropout) == (0.5, 0, False, 0.3)
    assert model.filters == ((1, 3), (2, 4), (4, 2))
    assert not found.networks.objective.head
    assert [note.partition(": ")[2] for note in found.notes] == [
        "colour: unknown, ignored",
        "no use_skip_connections: read as false, as in bilm-tf; `model.residual=true` changes it",
    ]
    assert elmo.ElmoFormat().read(folder, ["model.residual=true"]).networks.model.residual


def test_other_fractions_are_read_as_float32(tmp_path):
    asked = elmo_files.options()
    stored = {k: v.astype(np.float64 if k == "char_embed" else np.float16) for k, v in elmo_files.arrays(asked).items()}
    found = elmo.ElmoFormat().read(elmo_files.write(tmp_path, asked, stored))
    assert [note.partition(": ")[2] for note in found.notes] == [f"float{n} is read as float32" for n in (16, 64)]
    assert np.array_equal(found.tensors["model.letters.table.weight"], stored["char_embed"].astype(np.float32))


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.txt.gz"])
def test_the_list_of_words_comes_along(tmp_path, name):
    folder = theirs(tmp_path / "theirs")
    words = b"<S>\n</S>\n<UNK>\nthe\nnewts\n"
    (folder / name).write_bytes(gzip.compress(words) if name.endswith("gz") else words)
    (folder / "vocab_test.txt").write_text("not\nthis\n")
    take_over(folder, tmp_path / "ours")
    assert Tokenizer.load(tmp_path / "ours/tokenizer").encode("the newts <x>") == [3, 4, 2]
    assert (export(tmp_path / "ours", tmp_path / "out") / "vocab.txt").read_bytes() == words


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda o, a: o["lstm"].pop("dim"), r"options\.json: found no `lstm\.dim`; wanted the options"),
        (lambda o, a: o.pop("char_cnn"), r"options\.json: found no table `char_cnn`"),
        (lambda o, a: o["lstm"].update(gates=4), r"options\.json: found `lstm\.gates`, which is not known"),
        (lambda o, a: o["char_cnn"].update(n_characters=300), r"`char_cnn\.n_characters` 300, not 261 or 262"),
        (lambda o, a: o["char_cnn"].update(embedding=4), r"no `char_cnn\.embedding\.dim`"),
        (lambda o, a: o.update(bidirectional=False), r"`bidirectional` false"),
        (lambda o, a: o["char_cnn"].update(activation="gelu"), r"options\.json: model\.activation.*gelu"),
        (lambda o, a: o["lstm"].update(dim=10), r"Cell0/LSTMCell/W_0 is \[10, 48\], not \[10, 40\].* and \d+ more"),
        (lambda o, a: o["lstm"].update(n_layers=1), r"Cell1/LSTMCell/B is unexpected.*the datasets that options\.json"),
        (lambda o, a: a.pop("CNN_proj/W_proj"), r"model\.hdf5: CNN_proj/W_proj \[9, 5\] is missing"),
        (lambda o, a: a.update(char_embed=a["char_embed"][1:]), r"char_embed is \[260, 4\], not \[261, 4\]"),
        (lambda o, a: a.update(char_embed=a["char_embed"].astype(int)), r"char_embed has no floating-point numbers"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, spoil, said):
    asked = elmo_files.options()
    stored = elmo_files.arrays(asked)
    spoil(asked, stored)
    folder = elmo_files.write(tmp_path / "theirs", asked, stored)
    with pytest.raises((DataError, RecipeError), match=said):
        take_over(folder, tmp_path / "ours")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["theirs"]


@pytest.mark.parametrize("part", [lambda b: b[: len(b) // 2], lambda b: b"no HDF5 at all", lambda b: b""])
def test_a_damaged_file_is_refused(tmp_path, part):
    folder = theirs(tmp_path)
    file = folder / "model.hdf5"
    file.write_bytes(part(file.read_bytes()))
    with pytest.raises(DataError, match=r"model\.hdf5: cannot be read: .*a complete HDF5 file"):
        elmo.ElmoFormat().read(folder)


def test_several_files_of_weights_are_asked_about(tmp_path):
    folder = theirs(tmp_path, seed=1)
    (folder / "model.hdf5").rename(folder / "one.hdf5")
    shutil.copy(folder / "one.hdf5", folder / "other.hdf5")
    with pytest.raises(RecipeError, match=r"holds one\.hdf5 and other\.hdf5; wanted one file of weights"):
        elmo.ElmoFormat().read(folder)
    assert elmo.ElmoFormat().read(folder / "one.hdf5").tensors


def test_options_are_those_of_the_weights(tmp_path):
    folder = theirs(tmp_path)
    (folder / "model.hdf5").rename(folder / "big_five_weights.hdf5")
    (folder / "options.json").rename(folder / "big_five_options.json")
    for other in ("big_options.json", "options.json"):
        (folder / other).write_text("{}")
    assert elmo.ElmoFormat().read(folder).tensors
    (folder / "big_five_options.json").rename(folder / "small_options.json")
    (folder / "big_options.json").unlink()
    with pytest.raises(
        RecipeError, match=r"holds options\.json and small_options\.json; wanted one, or one whose name begins"
    ):
        elmo.ElmoFormat().read(folder)


def test_a_list_of_words_that_cannot_be_is_no_need(tmp_path):
    folder = theirs(tmp_path)
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\na\n")
    with pytest.raises(DataError, match="move it away: vectors need no word list"):
        elmo.ElmoFormat().read(folder)


def test_who_does_not_read_a_network_is_told():
    plain = {"width": 5, "cells": 9, "filters": ((1, 8),), "longest_word": 50}
    assert elmo.unread(Elmo(**plain)) == []
    for change, said in (({"residual": False}, "residual"), ({"cells": 5}, "more cells"), ({"longest_word": 40}, "50")):
        [told] = elmo.unread(Elmo(**{**plain, **change}))
        assert said in told


def test_without_h5py_one_line_says_what_to_install(tmp_path, monkeypatch):
    folder = theirs(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(RecipeError, match=r"needs h5py, which is not installed; pip install 'ordsmed\[hdf5\]'"):
        elmo.ElmoFormat().read(folder)


def test_without_h5py_a_run_is_not_opened_to_be_exported(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text('[model]\nkind = "elmo"\n')
    monkeypatch.setitem(sys.modules, "h5py", None)
    opened = []
    monkeypatch.setattr("ordsmed.weights.export.open_model", lambda *_: opened.append(1) or pytest.skip("opened"))
    for to in (None, "elmo"):
        with pytest.raises(RecipeError, match=rf"{tmp_path}/out: needs h5py, which is not installed; pip install"):
            export(run, tmp_path / "out", to=to)
    assert not opened
    (run / "recipe.toml").write_text('[model]\nkind = "bert"\n')
    with pytest.raises(pytest.skip.Exception):
        export(run, tmp_path / "out")
    assert opened


def test_each_format_knows_its_own(tmp_path):
    folder = theirs(tmp_path / "elmo")
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert/config.json").write_text("{}")
    for place, kind in ((folder, "elmo"), (folder / "model.hdf5", "elmo"), (tmp_path / "bert", "huggingface")):
        assert menu.kind_of(recognised(place)) == kind
        assert [k for k in menu.entries("formats") if menu.load("formats", k)().recognises(place)] == [kind]
    (folder / "options.json").unlink()
    with pytest.raises(RecipeError, match=r"no known format; wanted a folder with options.*; or a folder with config"):
        recognised(folder / "model.hdf5")
    (tmp_path / "elmo/options.json").write_text("{}")
    (folder / "model.hdf5").unlink()
    with pytest.raises(RecipeError, match="no known format"):
        recognised(folder)


def test_a_checkpoint_of_bilm_tf_is_its_dump_and_the_softmax(tmp_path, capsys):
    asked = elmo_files.options()
    stored = elmo_files.arrays(asked)
    folder = elmo_files.checkpoint(tmp_path / "theirs", asked, stored, 5)
    take_over(folder, tmp_path / "bare")
    assert "softmax over words is dropped: the list of its words is missing" in capsys.readouterr().err
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\nthe\nnewts\n")
    assert [k for k in menu.entries("formats") if menu.load("formats", k)().recognises(folder)] == ["elmo"]
    take_over(folder, tmp_path / "ours")
    take_over(elmo_files.write(tmp_path / "dump", asked, stored), tmp_path / "dumped")
    bare, whole, dumped = (own_tensors(open_model(tmp_path / n).objective) for n in ("bare", "ours", "dumped"))
    assert bare.keys() == dumped.keys()
    assert all(torch.equal(bare[name], dumped[name]) and torch.equal(whole[name], dumped[name]) for name in dumped)
    assert whole.keys() - dumped.keys() == {"head.table.weight", "head.bias"}
    assert torch.equal(whole["head.table.weight"], torch.arange(25.0).reshape(5, 5))
    (folder / "options.json").unlink()
    with pytest.raises(DataError, match=r"options\.json: no such file; wanted the options of its training"):
        take_over(folder, tmp_path / "ours", anew=True)
