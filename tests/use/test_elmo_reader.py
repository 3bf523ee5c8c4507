"""ELMo's vectors: the published ones, and those of plain loops, whatever the batch, with states carried and without."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kit import elmo_files
from kit.absent import Lazy
from ordsmed.text import vocabulary
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use import elmo_reader
from ordsmed.use.elmo_reader import ElmoReader
from ordsmed.use.embed import Form, embed
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

h5py = Lazy("h5py")
LINES = ["the newts ran up the hill", "", "naïve 🙂🙂🙂🙂 unquestionably", "up", "the the newts"]


def read_with(tmp_path, asked, stored, **how):
    take_over(elmo_files.write(tmp_path / "theirs", asked, stored), tmp_path / "ours", anew=True)
    return ElmoReader(open_model(tmp_path / "ours"), **how)


def of(reader, lines):
    return [read.vectors for read in reader.read(lines)]


def near(found, wanted, within=2e-5):
    pairs = zip(found, wanted, strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, rtol=0, atol=within) for a, b in pairs)


@pytest.mark.parametrize("changed", elmo_files.SETS.values(), ids=elmo_files.SETS)
def test_vectors_are_those_of_plain_loops(tmp_path, changed):
    asked = elmo_files.options(**changed)
    stored = elmo_files.arrays(asked)
    reader = read_with(tmp_path, asked, stored)
    found = reader.read(LINES)
    assert [read.words for read in found] == [line.split() for line in LINES]
    assert near([read.vectors for read in found], [elmo_files.vectors(asked, stored, [line])[0] for line in LINES])
    assert found[0].vectors.dtype == np.float32
    clip = asked["lstm"]["proj_clip"]
    assert not clip or (np.abs(found[0].vectors[1]) == np.float32(clip)).mean() > 0.05, "the clip is put to the test"
    assert [read.cut for read in found] == [0, 0, 2, 0, 0], "12 symbols are 10 bytes and two signs"
    assert (reader.layers, reader.width) == (asked["lstm"]["n_layers"] + 1, 2 * asked["lstm"]["projection_dim"])


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_windows_and_batches_change_nothing(tmp_path, monkeypatch, window):
    asked = elmo_files.options()
    stored = elmo_files.arrays(asked)
    monkeypatch.setattr(elmo_reader, "WINDOW", window)
    monkeypatch.setattr(elmo_reader, "WORDS", window)
    whole = of(read_with(tmp_path, asked, stored), LINES)
    assert near(whole, [elmo_files.vectors(asked, stored, [line])[0] for line in LINES])
    assert near(of(read_with(tmp_path, asked, stored, batch=2), LINES), whole)
    reader = read_with(tmp_path, asked, stored)
    assert all(np.array_equal(a, b) for a, b in zip(of(reader, LINES), of(reader, LINES), strict=True)), "silence again"


def test_carried_states_go_on_row_by_row(tmp_path):
    asked = elmo_files.options()
    stored = elmo_files.arrays(asked)
    lines = [*LINES, "a", "last of all"]  # batches of three; the last is smaller
    found = of(read_with(tmp_path, asked, stored, carry=True, batch=3), lines)
    for row in range(3):
        assert near(found[row::3], elmo_files.vectors(asked, stored, lines[row::3]))
    alone = of(read_with(tmp_path, asked, stored), lines)
    assert near(found[:3], alone[:3])
    assert not any(near([found[n]], [alone[n]], 1e-3) for n in range(3, len(lines)))


def test_small_letters_where_it_learned_from_such(tmp_path):
    asked = elmo_files.options()
    reader = read_with(tmp_path, asked, elmo_files.arrays(asked))
    signs = {name: n for n, name in enumerate(vocabulary.SIGNS)}
    Tokenizer(vocabulary.words(signs, split="spaces", lowercase=True)).save(tmp_path / "ours/tokenizer")
    lowered = ElmoReader(open_model(tmp_path / "ours"))
    assert near(of(lowered, ["The NEWTS"]), of(reader, ["the newts"]))
    assert lowered.read(["The NEWTS"])[0].words == ["The", "NEWTS"]


def test_embed_writes_them(tmp_path, capsys):
    asked = elmo_files.options()
    stored = elmo_files.arrays(asked)
    take_over(elmo_files.write(tmp_path / "theirs", asked, stored), tmp_path / "ours")
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    for carry in (False, True):
        embed(tmp_path / "ours", tmp_path / "in.txt", tmp_path / "out.h5", Form(carry=carry, batch=2), anew=True)
        assert "2 of 13 words are longer than the model reads: truncated" in capsys.readouterr().err
        rows = [LINES[n::2] for n in range(2)] if carry else [[line] for line in LINES]
        wanted = [elmo_files.vectors(asked, stored, row) for row in rows]
        wanted = [wanted[n % 2][n // 2] for n in range(len(LINES))] if carry else [one for (one,) in wanted]
        with h5py.File(tmp_path / "out.h5") as file:
            assert sorted(file) == ["0", "1", "2", "3", "4"]
            assert near([file[str(n)][()] for n in range(len(LINES))], wanted)


def test_the_published_vectors(shared_data, tmp_path):
    folder = shared_data / "elmo/model"
    take_over(folder, tmp_path / "ours")
    rows = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    lines = [row[batch] for batch in range(len(rows[0])) for row in rows]
    trained = open_model(tmp_path / "ours")
    found = of(ElmoReader(trained, carry=True, batch=len(rows)), lines)[:: len(rows)]
    with h5py.File(folder / "lm_embeddings_0.hdf5") as file:
        wanted = [np.concatenate(list(file[str(n)][()]), -1) for n in range(len(rows[0]))]
    assert max(np.abs(a[-1] - b).max() for a, b in zip(found, wanted, strict=True)) < 1e-6
    alone = of(ElmoReader(trained), rows[0])
    assert np.abs(alone[0][-1] - wanted[0]).max() < 1e-6
    assert np.abs(alone[1][-1] - wanted[1]).max() > 0.1, "the published ones were carried"
    asked, stored = json.loads((folder / "options.json").read_text()), elmo_files.read(folder / "lm_weights.hdf5")
    assert near(found[:2], elmo_files.vectors(asked, stored, rows[0][:2]), 2e-6)


def test_lines_are_cut_as_the_tokenizer_cuts(tmp_path):
    """Raw text for a model that learned from words with their punctuation apart."""
    asked = elmo_files.options()
    read_with(tmp_path, asked, elmo_files.arrays(asked))
    signs = {name: number for number, name in enumerate(vocabulary.SIGNS)}
    Tokenizer(vocabulary.words(signs, split="words", lowercase=False)).save(tmp_path / "ours" / "tokenizer")
    trained = open_model(tmp_path / "ours")
    [apart] = ElmoReader(trained, cut=True).read(["Don't run, newts!"])
    [whole] = ElmoReader(trained).read(["Don't run , newts !"])
    assert apart.words == whole.words == ["Don't", "run", ",", "newts", "!"]
    assert np.allclose(apart.vectors, whole.vectors, atol=1e-6)
