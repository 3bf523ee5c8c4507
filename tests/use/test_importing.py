"""A model of another format becomes a folder that every verb opens and that a training starts from."""

from __future__ import annotations

import tomllib

import pytest
import torch

from kit import elmo_files
from ordsmed import cli
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.nn.model import own_tensors
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.use.fill import fill
from ordsmed.weights.export import export
from ordsmed.weights.importing import take_over
from ordsmed.weights.trained_model import open_model

CORPUS = 'validation = 0.1\nout = "{folder}/corpus"\n[source]\nkind = "text"\npath = "{folder}/texts.txt"\n'
TOKENIZER = 'corpus = "{folder}/corpus.toml"\nout = "{folder}/tokenizer"\n[tokenizer]\nkind = "words"\nsize = 25\n'
ENCODE = 'corpus = "{folder}/corpus.toml"\ntokenizer = "{folder}/tokenizer.toml"\nout = "{folder}/encode"\n'
WHO, DOES, WHAT = ("smith", "newt", "fox"), ("mends", "sees", "forgets"), ("gate", "boat", "bell", "road")
PRETRAIN = """
data = "{folder}/encode.toml"
init = "{folder}/ours"
out = "{folder}/run"
layout = {{ device = "cpu" }}
[objective]
kind = "bilm"
samples = 4
[[phase]]
steps = 2
length = 5
batch = 4
learning_rate = 1e-3
"""


@pytest.fixture
def theirs(tmp_path):
    asked = elmo_files.options()
    return elmo_files.write(tmp_path / "theirs", asked, elmo_files.arrays(asked))


def test_the_verb_writes_what_the_others_open(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["import", "theirs", "ours", "model.dropout=0.2"])
    told = capsys.readouterr().out.splitlines()
    assert told == ["ours: elmo with 3,891 numbers, from theirs (elmo)", "next:", "    ordsmed show ours"]
    written = sorted(p.name for p in (tmp_path / "ours").iterdir())
    assert written == ["README.md", "model.safetensors", "settings.toml", "tokenizer"]
    opened = open_model("ours")
    assert (opened.kind, opened.settings.dropout, opened.recipe) == ("elmo", 0.2, None)
    cli.main(["show", "ours"])
    shown = capsys.readouterr().out
    assert "dropout = 0.2" in shown
    assert "3,891 numbers" in shown
    with pytest.raises(RecipeError, match="ours: is an ELMo, which cannot fill masks"):
        fill(opened, "a [MASK]")
    cli.main(["export", "ours", "out"])
    assert capsys.readouterr().out.startswith("out: written; options.json, model.hdf5, vocab.txt")
    assert "library_name" not in (tmp_path / "out/README.md").read_text()


def test_whole_or_not_at_all(theirs, tmp_path):
    take_over(theirs, tmp_path / "ours")
    with pytest.raises(RecipeError, match=r"ours: stands; wanted a new folder.*--anew"):
        take_over(theirs, tmp_path / "ours")
    (theirs / "options.json").write_text("{}")
    with pytest.raises(DataError, match="no table `lstm`"):
        take_over(theirs, tmp_path / "ours", anew=True)
    assert open_model(tmp_path / "ours")
    for target in (theirs, tmp_path):
        with pytest.raises(RecipeError, match="is the model that is read, or contains it"):
            take_over(theirs / "model.hdf5", target, anew=True)


def test_what_cannot_be_taken_over(theirs, tmp_path, monkeypatch):
    wanted = "nowhere: no such folder or file; wanted a model in a format of `ordsmed menus formats`"
    (tmp_path / "work/pretrain/nowhere").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=wanted) as error:
        take_over(tmp_path / "nowhere", tmp_path / "ours")
    assert "work/pretrain" not in str(error.value)
    assert "ordsmed recipes" not in str(error.value)
    changes = (
        r"`phase\.learning_rate=1`: is not a setting of the model, .*; wanted model\.key=value, objective\.key=value or"
    )
    with pytest.raises(RecipeError, match=changes):
        take_over(theirs, tmp_path / "ours", ["phase.learning_rate=1"])
    with pytest.raises(RecipeError, match=r"did you mean `model\.dropout`"):
        take_over(theirs, tmp_path / "ours", ["model.dropuot=0"])
    take_over(theirs, tmp_path / "ours")
    with pytest.raises(RecipeError, match="ours: is a folder of this library"):
        take_over(tmp_path / "ours", tmp_path / "again")


def test_what_a_verb_names_is_taken_over_once(theirs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ORDSMED_CACHE", str(tmp_path / "cache"))
    opened = open_model(theirs)
    assert opened.kind == "elmo"
    (folder,) = (p for p in (tmp_path / "cache/taken").iterdir() if p.is_dir())
    assert opened.folder == folder
    assert f"{theirs}: elmo, converted to {folder}\n" in capsys.readouterr().err
    take_over(theirs, tmp_path / "ours")
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "ours/model.safetensors").read_bytes()
    before = (folder / "settings.toml").stat().st_mtime_ns
    assert open_model(theirs / "model.hdf5").kind == "elmo"  # its file may be named as well
    assert open_model(theirs).folder == folder
    assert (folder / "settings.toml").stat().st_mtime_ns == before
    assert "converted to" in capsys.readouterr().err  # that of the file alone
    (theirs / "options.json").write_text("{}")
    with pytest.raises(DataError, match="no table `lstm`"):
        open_model(theirs)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=r"empty: is neither a run nor a model of a known format; wanted .*formats`"):
        open_model(tmp_path / "empty")


def test_hugging_face_folders_as_well(tiny_run, tmp_path):
    for run in (tiny_run.bert, tiny_run.gpt2):
        out = export(run, tmp_path / run.name)
        take_over(out, tmp_path / "ours", anew=True)
        found, was = (own_tensors(open_model(path).objective) for path in (tmp_path / "ours", run))
        assert found.keys() == was.keys()
        assert all(torch.equal(found[name], was[name]) for name in was)


def test_a_training_starts_from_it(theirs, tmp_path, capsys, details):
    sentences = (f"The {who} {does} a {what}." for who in WHO for does in DOES for what in WHAT)
    (tmp_path / "texts.txt").write_text("\n\n".join(sentences))
    for name, text in (("corpus", CORPUS), ("tokenizer", TOKENIZER), ("encode", ENCODE), ("run", PRETRAIN)):
        (tmp_path / f"{name}.toml").write_text(text.format(folder=tmp_path))
    take_over(theirs, tmp_path / "ours")
    bare = PRETRAIN.format(folder=tmp_path).replace(f"{tmp_path}/ours", str(theirs)).replace("/run", "/direct")
    (tmp_path / "direct.toml").write_text(bare)
    direct = open_model(pretrain(str(tmp_path / "direct.toml")), 0)
    run = pretrain(str(tmp_path / "run.toml"))
    told = capsys.readouterr().err
    assert f"{tmp_path}/ours: has no head: it starts from random weights\n" in told
    assert f"weights from {tmp_path}/ours (imported)\n" in told
    began, ours = (own_tensors(open_model(*path).objective) for path in ((run, 0), (tmp_path / "ours",)))
    same = own_tensors(direct.objective)
    assert all(torch.equal(same[name], began[name]) for name in began)
    assert began.keys() - ours.keys() == {"head.table.weight", "head.bias"}
    assert all(torch.equal(began[name], ours[name]) for name in ours)
    assert tomllib.loads((run / "weights/settings.toml").read_text())["model"]["width"] == 5
    out = export(run, tmp_path / "out")
    assert (out / "vocab.txt").read_text().startswith("<S>\n</S>\n<UNK>\n")
    assert "softmax over words is not exported" in capsys.readouterr().err
    take_over(out, tmp_path / "back")
    trained, back = (own_tensors(open_model(path).objective) for path in (run, tmp_path / "back"))
    assert all(torch.equal(trained[name], back[name]) for name in back)
    other = ["model.kind=elmo", "model.width=5", "model.cells=13", f"out={tmp_path}/other"]
    with pytest.raises(RecipeError, match=r"model: found cells 13, .*wanted cells \d+, .* has; leave \[model\] out"):
        pretrain(str(tmp_path / "run.toml"), other)
