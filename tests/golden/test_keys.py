"""Golden keys: what folders on disk are named by, so that what an older code made is found again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ordsmed.base import files
from ordsmed.base.run import Run, obtain
from ordsmed.corpus.pipeline import Corpus
from ordsmed.learn.tasks import classify
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.finetune import examples

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
RECIPE = """
out = "corpus"
keep_steps = true
[near]
[held_out]
paths = "held.txt"
[source]
kind = "text"
path = "texts.txt"
"""


def test_the_folders_of_a_corpus_are_named_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("held.txt", "held out"), ("texts.txt", "One text.\n\nAnother text.\n"), ("c.toml", RECIPE)):
        Path(name).write_text(text)
        os.utime(name, (1_700_000_000, 1_700_000_000))
    folder = obtain(Corpus, "c.toml", ["processes=1"])
    assert Run(folder).status["fingerprint"] == "16df0f1a2fa63b5f"
    named = {"held-out-8f9c053956f5.npy", "read-006969ac787e", "match-2ac5df075e83", "write.json"}
    assert {path.name for path in (folder / "steps").iterdir()} == named
    key = "ab6fb81960398581090d248bda8b42fe6836c422a191682ff3245d20f0be737c"
    assert files.read_json(folder / "steps" / "write.json") == key


def test_the_features_of_examples_are_named_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vocab.txt").write_text("\n".join([*SPECIAL, "w0", "w1", "w2"]) + "\n")
    Path("train.tsv").write_text("text\tlabel\nw1 w2\ta\nw0\tb\n")
    os.utime("train.tsv", (1_700_000_000, 1_700_000_000))
    task = classify.Classify(train="train.tsv", length=8, labels=("a", "b"))
    records = task.records(task.paths("train"), learning=True)
    network = bert.Bert(width=16, layers=1, heads=2, positions=32)
    examples._split(task, network, Tokenizer.load("vocab.txt"), "cache", "train", records)
    assert [path.name for path in Path("cache").iterdir() if path.is_dir()] == ["classify-train-bbc1274e102e1482"]
