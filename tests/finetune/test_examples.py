"""What a fine-tuning reads: orders of its own for each phase and seed, a cache that tells readers apart, adapters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kit.makers import SPECIAL, change, job_of
from ordsmed.data.features import Features, Packing
from ordsmed.finetune import examples
from ordsmed.finetune.examples import Examples, Split
from ordsmed.finetune.start import prepared
from ordsmed.learn.objective import fresh
from ordsmed.learn.phases import Stretch
from ordsmed.models import bert
from ordsmed.nn.adapters import Adapters
from ordsmed.nn.dropout import Dropout
from ordsmed.tasks import classify
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.material import Texts

NETWORK = bert.Settings(width=16, layers=1, heads=2, positions=32, dropout=0.1, attention_dropout=0.1)


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(9))]) + "\n")
    return Tokenizer.load(tmp_path / "vocab.txt")


def made(seed: int = 0, sizes: tuple[int, ...] = (3, 4, 6)) -> Examples:
    starts = np.cumsum([0, *sizes * 10])
    features = Features(starts, np.arange(starts[-1], dtype=np.int32), types=None)
    return Examples(None, None, Packing(0), seed, Split([], features), None)  # type: ignore[arg-type]


def test_examples_come_in_another_order_for_each_phase_and_seed() -> None:
    begun = lambda own, *which: own.rows(*which).batch(np.arange(30)).tokens.tolist()  # noqa: E731
    assert len({str(each) for each in (begun(made(), 0), begun(made(), 1), begun(made(seed=1), 0))}) == 3
    assert begun(made(), 0, 1) == begun(made(), 1), "phases of the run before count too"


def test_a_row_is_as_long_as_an_example_on_average() -> None:
    assert made().row_length(0) == round(13 / 3)
    assert made(sizes=(0,)).row_length(0) == 1


def test_readers_of_another_kind_have_features_of_their_own(
    tmp_path: Path, words: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files, settings and tokenizer, read with types or without, by who looks back alone or both ways."""
    (tmp_path / "train.tsv").write_text("text\tlabel\nw1 w2\ta\nw3\tb\n")
    task = classify.Settings(train=str(tmp_path / "train.tsv"), length=8, labels=("a", "b"))
    records = task.records(task.paths("train"), learning=True)

    def split(**how: Any) -> None:
        read = examples.reader(words, NETWORK)
        monkeypatch.setattr(examples, "reader", lambda *_: dataclasses.replace(read, **how))
        examples._split(task, NETWORK, words, str(tmp_path / "cache"), "train", records)
        monkeypatch.undo()

    counts = []
    for how in ({}, {}, {"causal": True}, {"types": False}):
        split(**how)
        counts.append(len(list((tmp_path / "cache").glob("classify-train-*"))))
    assert counts == [1, 1, 2, 3]


def test_adapters_drop_in_places_of_their_own(words: Tokenizer) -> None:
    task = classify.Settings(train="train.tsv", labels=("a", "b"))
    recipe: Any = SimpleNamespace(freeze=False, adapters=Adapters(dropout=0.1), seed=3)
    plain = fresh(task, NETWORK, words, 0)
    own = prepared(fresh(task, NETWORK, words, 0), recipe)  # type: ignore[arg-type]
    places = [m.place for m in own.modules() if isinstance(m, Dropout)]
    assert len(places) > len([m for m in plain.modules() if isinstance(m, Dropout)])
    assert sorted(places) == list(range(len(places)))


def test_a_phase_knows_which_part_of_the_run_it_is(recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What settings that change over the run go by; a validation goes by its end."""
    second = "[[phase]]\nsteps = 2\nlength = 16\nbatch = 4\nrate = 1e-3"
    job = job_of(recipe(steps=3, extra=second), "model.width=16", "model.layers=1", "seed=5")
    asked: list[Any] = []
    monkeypatch.setattr(type(job.recipe.objective), "rows", lambda *given, **how: asked.append((given[4:], how)))
    change(job, phases_before=2)
    job.rows(1)
    assert isinstance(job.material, Texts)
    job.material.validation(1)
    (training, how), (held_out, judged) = asked
    assert (training[1:], how["stretch"]) == ((5, 3), Stretch.of(job.phases, 1))
    assert held_out[1:] == ("validation",)
    assert judged["stretch"].judged
    assert held_out[0].length == 16
