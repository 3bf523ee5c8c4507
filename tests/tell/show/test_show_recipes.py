"""What is shown of recipes before anything is made: which verb's they are, what already exists, what is still to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit.makers import make_store
from kit.task_files import task_files
from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError
from ordsmed.tell.show import show
from ordsmed.train.finetune import finetune
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.pretrain import rehearse

TUNING = """
tokenizer = "vocab.txt"
steps = 4
batch = 8
features = ""
out = "tuned"
layout = {device = "cpu", threads = 1}
[model]
kind = "bert"
width = 16
layers = 1
heads = 2
positions = 64
[task]
kind = "classify"
length = 32
train = "train.tsv"
dev = "dev.tsv"
"""
TRAINING = """
data = "store"
[model]
kind = "bert"
width = 16
layers = 1
heads = 2
positions = 64
[objective]
kind = "mlm"
[layout]
device = "cpu"
[[phase]]
steps = 3
length = 32
batch = 8
learning_rate = 1e-3
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def encoded() -> Path:
    """A store with the recipe it would have been made by."""
    store = make_store(Path("store"))
    (store / "recipe.toml").write_text('corpus = "nowhere"\ntokenizer = "store/tokenizer"\n')
    return store


@pytest.fixture
def tuning() -> Path:
    task_files(Path())
    Path("tune.toml").write_text(TUNING)
    return Path("tune.toml")


@pytest.mark.parametrize(
    ("table", "verb"),
    [
        ({"measure": "finetune", "task": {}}, "bench"),
        ({"phase": [], "tokenizer": "x"}, "pretrain"),
        ({"task": {}, "tokenizer": "x"}, "finetune"),
        ({"source": {}}, "corpus"),
        ({"tokenizer": {"kind": "bpe"}, "corpus": "x"}, "tokenizer"),
        ({"tokenizer": "x", "corpus": "x"}, "encode"),
    ],
)
def test_a_recipe_s_verb_is_known_by_its_keys(table: dict[str, Any], verb: str) -> None:
    assert show._verb(table, "r") == verb


def test_a_table_of_no_verb_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"^r: keys a, b; wanted those of a corpus, tokenizer, encode, pretrain, fi"):
        show._verb({"a": 1, "b": 2}, "r")


def test_a_name_of_two_verbs_is_that_of_the_first() -> None:
    """Short names belong to a verb; those with their folder and files are looked into."""
    path, verb = show._find("bert-base", "")
    assert (path.parent.name, path.stem, verb) == ("pretrain", "bert-base", "pretrain")
    path, verb = show._find("tiny/bert", "")
    assert (path.parent.name, verb) == ("tiny", "")
    path, verb = show._find("loader", "")
    assert (path.parent.name, verb) == ("bench", "bench")
    assert show._find("bert-base", "pretrain")[0].parent.name == "pretrain"
    Path("bert-base").write_text("")
    assert show._find("bert-base", "") == (Path("bert-base"), "")


def test_what_a_recipe_is_like_may_be_of_either_training() -> None:
    Path("one.toml").write_text('like = "bert-base"\nseed = 3\n')
    Path("two.toml").write_text('like = "conll-2003"\nseed = 4\n')
    assert {"data", "seed"} <= show._table(Path("one.toml"), "").keys()
    assert {"task", "seed"} <= show._table(Path("two.toml"), "").keys()
    with pytest.raises(RecipeError, match="no recipe of `encode`"):
        show._table(Path("two.toml"), "encode")
    Path("two.toml").write_text('like = "conll-2033"\n')
    with pytest.raises(RecipeError, match="no recipe of `pretrain`"):
        show._table(Path("two.toml"), "")


def test_a_recipe_and_its_cost() -> None:
    encoded()
    Path("train.toml").write_text(TRAINING)
    lines = show.show("train.toml", ["seed=4"])
    assert lines[0] == "train.toml: pretrain"
    assert "  seed = 4" in lines
    at = lines.index(next(line for line in lines if line.startswith("data: ")))
    heads = [line.partition(":")[0] for line in lines[at:]]
    lying = ["layout", "phase 1", "layout.precision", "attention", "memory a rank"]
    passes = next(line for line in lines if " passes over " in line)
    assert heads == ["data", "positions", "network", "phase 1", "in total", passes, *lying]
    spread = show.layout("train.toml", devices=2)
    assert spread[0].startswith("layout: 2 x 1 x 1")
    assert spread[1].endswith("batch = micro 4 x accumulation 1 x devices 2")
    assert spread[2:] == lines[at + 8 :]
    assert show.layout("train.toml", ["layout.micro=2"], devices=2)[1].endswith("micro 2 x accumulation 2 x devices 2")
    assert show.layout("train.toml", layout="1x2x1")[0].startswith("layout: 1 x 2 x 1")
    recipe, told = rehearse("train.toml", ["seed=4"])
    rehearsed = [line.partition("; about ")[0] for line in show.rehearsed("train.toml", ["seed=4"], recipe, told)]
    assert rehearsed[at:] == lines[at:], "it is told alike, but for the time that it takes here"
    assert not Path("work").exists()
    with pytest.raises(RecipeError, match="is not a training; wanted a recipe or run of"):
        show.layout("loader")


def test_a_fine_tuning_and_what_it_reads(tuning: Path) -> None:
    """Its files, its examples as they will be cut, its network with the head that its labels make."""
    lines = show.show(str(tuning))
    at = lines.index("init: random weights, bert; 126 pieces")
    found = lines[at + 1 :]
    assert found[0].startswith("defaults of bert: learning_rate ")
    assert found[1].startswith("task.train: train.tsv, ")
    assert found[2].startswith("task.dev: dev.tsv, ")
    words = [len(line.split("\t")[0].split()) + 2 for line in Path("train.tsv").read_text().splitlines()[1:]]
    told = f"examples: 48 of {sum(words) / 48:.1f} tokens (the longest has {max(words)}); 21 for validation"
    assert found[3:5] == [told, "48 examples for training: 4 steps of 8, 0.667 epochs"]
    assert found[5].startswith("network: ")
    assert found[5].endswith(" parameters with its head")
    assert [line.partition(":")[0] for line in found[6:]] == [
        "layout",
        "phase 1",
        "layout.precision",
        "attention",
        "memory a rank",
    ]
    assert found[7].endswith("batch = micro 8 x accumulation 1 x devices 1")
    assert not Path("tuned").exists()
    assert finetune.rehearse(str(tuning))[1] == lines[at:]
    two = show.layout(str(tuning), devices=2)
    assert two[0].startswith("layout: 2 x 1 x 1")
    assert two[1].endswith("batch = micro 4 x accumulation 1 x devices 2")
    assert two[2:] == found[8:]


def test_a_fine_tuning_whose_files_lack(tuning: Path) -> None:
    """The number of classes is unknown, so the network is described without a head."""
    Path("train.tsv").unlink()
    lines = show.show(str(tuning), ["task.dev=[]"])
    assert "task.train: train.tsv does not exist" in lines
    assert "task.dev: none, so the last checkpoint is used and nothing is scored" in lines
    assert not any(line.startswith("examples") for line in lines)
    assert any(line.endswith(" parameters without a head") for line in lines)
    told = show.show(str(tuning), ["tokenizer=t.toml"])
    assert "tokenizer: t.toml does not exist yet; it will be made when it is needed" in told
    without = settings.read(tuning)
    for key in ("tokenizer", "model"):
        del without[key]
    files.write_text(Path("from.toml"), settings.write(settings.decode(Finetuning, {**without, "init": "before"}, "r")))
    (line,) = [line for line in show.show("from.toml") if line.startswith("init: ")]
    assert line.startswith("init: before does not exist here (`ordsmed recipes` lists recipes); ")
    assert line.endswith("; its default settings and its size are not known yet")


def test_trials_are_told_before_they_are_made(tuning: Path) -> None:
    lines = show.show(str(tuning), ["seeds=[1,2]", "grid.rate=[1e-4,1e-3]"])
    (told,) = [line for line in lines if line.startswith("trials: ")]
    assert told == (
        "trials: 4, each trained on one device: rate-0.0001,seed-1 rate-0.0001,seed-2 "
        "rate-0.001,seed-1 ... and 1 others"
    )
    assert "seeds = [" in "".join(lines)
    without = settings.read(tuning)
    for key in ("tokenizer", "model"):
        del without[key]
    found = settings.decode(Finetuning, {**without, "init": "before", "step": "all"}, "r")
    assert show._trials(found, "r") == ["trials: one from each checkpoint of `init`, and for each setting and seed"]
