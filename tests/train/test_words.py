"""Words seen: counted by a run, the same where it is stopped and goes on; weights kept at numbers of words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordsmed.base import snapshots
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.data.store import Store
from ordsmed.tell.show.state import _words_seen
from ordsmed.train import checkpoint
from ordsmed.train.meters import read
from ordsmed.train.pretrain.pretrain import pretrain

Recipe = Callable[..., Path]


@pytest.fixture
def counted(store: Path, tmp_path: Path) -> Path:
    """The store with a word a token."""
    shutil.copytree(store, tmp_path / "counted")
    np.save(tmp_path / "counted/train.words.npy", np.asarray(Store.open(store / "train").lengths, np.int32))
    return tmp_path / "counted"


def words_of(folder: Path) -> list[int]:
    return [line["words"] for line in read(folder / "metrics.jsonl") if "loss" in line]


def test_a_run_counts_words_and_keeps_weights_by_them(
    recipe: Recipe, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"data": str(counted), "revisions_at_words": [300, 1000, 1100], "keep": 1, "save": 100}
    whole = pretrain(str(recipe("whole", steps=9, **how)))
    words = words_of(whole)
    each = np.diff([0, *words])
    assert (each > 150).all()
    assert (each <= 8 * 30).all()  # eight rows of 32, two signs in each
    reached = [(f"chck_{n}", next(k for k, w in enumerate(words, 1) if w >= n)) for n in (300, 1000, 1100)]
    assert snapshots.reached(whole / "checkpoints") == reached
    assert checkpoint.steps(whole / "checkpoints") == sorted({*(step for _, step in reached), 9})
    kept = snapshots.path_of(whole / "checkpoints", reached[0][1])
    assert snapshots.is_stripped(kept)
    assert json.loads((whole / "scores.json").read_text())["words"] == words[-1]
    last = read(whole / "metrics.jsonl")[-2]
    assert _words_seen(whole, last) == [f"{words[-1]:,} words seen; kept: chck_300 to chck_1100 (3 revisions)"]
    monkeypatch.setenv("ORDSMED_STOP_AT", "3")
    with pytest.raises(Stopped):
        pretrain(str(cut := recipe("cut", steps=9, **how)))
    monkeypatch.delenv("ORDSMED_STOP_AT")
    folder = pretrain(str(cut))
    assert words_of(folder) == words
    assert snapshots.reached(folder / "checkpoints") == reached
    for _, step in reached:
        parts = [snapshots.path_of(f / "checkpoints", step) / "model.safetensors" for f in (whole, folder)]
        assert parts[0].read_bytes() == parts[1].read_bytes()


def test_words_that_nobody_counted_are_refused(recipe: Recipe, store: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"revisions_at_words: words of phase 1 cannot be counted: .*; encode the corp"
    ):
        pretrain(str(recipe(revisions_at_words=[300])))
    assert "words" not in read(pretrain(str(recipe("plain", steps=2))) / "metrics.jsonl")[0]
    with pytest.raises(RecipeError, match="revisions_at_words: found 0; wanted words from 1 on"):
        pretrain(str(recipe("none", revisions_at_words=[0])))
