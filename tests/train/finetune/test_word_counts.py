"""The baseline of counting words: naive Bayes as by hand, and what a fine-tuning below it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ordsmed
from kit.task_files import task_files
from ordsmed.data.features import Features
from ordsmed.learn.classification.word_counts import counted_classes
from ordsmed.tell.report.folders import read
from ordsmed.tell.show.show import show
from ordsmed.train.finetune.summary import summary_lines


def features(rows: list[list[int]], labels: list[int] | None = None, **more: Any) -> Features:
    starts = np.cumsum([0, *map(len, rows)])
    return Features(
        starts, np.concatenate(rows).astype(np.int32), labels=None if labels is None else np.array(labels), **more
    )


def test_naive_bayes_counts_the_tokens_of_each_class() -> None:
    train = features([[0, 1, 1], [0, 2], [0, 2, 3], [0]], [0, 1, 1, -1])
    tried = [[0, 1], [2, 3], [0], [9], [1, 1, 2, 2, 2]]
    wanted = []
    for row in tried:
        scores = []
        for label in (0, 1):
            counts = np.ones(10)
            for text, gold in (([0, 1, 1], 0), ([0, 2], 1), ([0, 2, 3], 1)):
                np.add.at(counts, text if gold == label else [], 1)
            scores.append(np.log(1 + [1, 2][label]) + np.log(counts / counts.sum())[row].sum())
        wanted.append(int(np.argmax(scores)))
    found = counted_classes(train, features(tried), 2)
    assert found is not None
    assert found.tolist() == wanted
    assert {0, 1} <= set(wanted)
    assert counted_classes(features([[1]]), features([[1]]), 2) is None
    assert counted_classes(features([[1]], [0], characters=np.zeros(1, np.uint8)), features([[1]]), 2) is None


def test_a_fine_tuning_that_learned_little_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its last line, its scores, and by show and report; one that learned says nothing."""
    monkeypatch.chdir(tmp_path)
    task_files(tmp_path / "lab")
    words = {"low": ["w1 w2", "w3 w1"] * 6, "high": ["w90 w91", "w99 w90"] * 6}
    data = {
        "text": [text for texts in words.values() for text in texts],
        "label": [label for label, texts in words.items() for _ in texts],
    }
    network = {"kind": "bert", "width": 16, "layers": 1, "heads": 2, "positions": 64}
    lines = [f"{key} = {json.dumps(value)}" for key, value in network.items()]
    head = ['tokenizer = "lab/vocab.txt"', 'features = ""', "batch = 8", "[layout]", 'device = "cpu"', "threads = 1"]
    Path("mine.toml").write_text(
        "\n".join([*head, "[model]", *lines, "[task]", 'kind = "classify"', "length = 16", ""])
    )
    run = ordsmed.finetune("mine.toml", train=data, dev=data, out="little", learning_rate=1e-9, epochs=1)
    assert run.scores["word_counts"]["accuracy"] == 100.0
    verdict = run.scores["verdict"]
    assert verdict.startswith("accuracy 50.00 is no better than guessing")
    assert summary_lines(run.folder)[-2:] == ["counting words: accuracy 100.00, macro_f1 100.00", verdict]
    assert any(verdict in line for line in show("little"))
    [facts] = read([Path("little")])
    assert facts["notes"] == [verdict]
    run = ordsmed.finetune("mine.toml", train=data, dev=data, out="much", learning_rate=1e-2, epochs=20)
    assert run.scores["accuracy"] == 100.0
    assert "verdict" not in run.scores
