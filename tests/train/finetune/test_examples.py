"""What a fine-tuning reads: orders of its own for each phase and seed, a cache that tells readers apart, adapters."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import SPECIAL, change, job_of
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.data.features import Features, Packing
from ordsmed.learn.objective import fresh
from ordsmed.learn.phases import Stretch
from ordsmed.learn.tasks import classify
from ordsmed.nn.adapters import Adapters
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.finetune import examples, finish
from ordsmed.train.finetune.examples import TaskData, TaskSplit
from ordsmed.train.finetune.initialization import prepare
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.texts import TextData

NETWORK = bert.Bert(width=16, layers=1, heads=2, positions=32, dropout=0.1, attention_dropout=0.1)


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(9))]) + "\n")
    return Tokenizer.load(tmp_path / "vocab.txt")


def made(seed: int = 0, sizes: tuple[int, ...] = (3, 4, 6)) -> TaskData:
    starts = np.cumsum([0, *sizes * 10])
    features = Features(starts, np.arange(starts[-1], dtype=np.int32), types=None)
    return TaskData(classify.Classify(), None, Packing(0), seed, TaskSplit([], features), None)  # type: ignore[arg-type]


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
    task = classify.Classify(train=str(tmp_path / "train.tsv"), length=8, labels=("a", "b"))
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
    task = classify.Classify(train="train.tsv", labels=("a", "b"))
    recipe: Any = SimpleNamespace(freeze=False, adapters=Adapters(dropout=0.1), seed=3)
    plain = fresh(task, NETWORK, words, 0)
    own = prepare(fresh(task, NETWORK, words, 0), recipe)  # type: ignore[arg-type]
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
    assert isinstance(job.data, TextData)
    job.data.validation(1)
    (training, how), (held_out, judged) = asked
    assert (training[1:], how["stretch"]) == ((5, 3), Stretch.of(job.phases, 1))
    assert held_out[1:] == ("validation",)
    assert judged["stretch"].validating
    assert held_out[0].length == 16


@pytest.fixture
def read_in(tmp_path: Path, words: Tokenizer) -> Any:
    """Reads files of two labels; what a recipe says of them may be another thing."""

    def write(name: str, *rows: str) -> str:
        (tmp_path / name).write_text("text\tlabel\n" + "".join(f"{row}\n" for row in rows))
        return str(tmp_path / name)

    train = write("train.tsv", "w1 w2\ta", "w3\tb", "w4 w5 w6\ta")
    dev = write("dev.tsv", "w1\ta", "w2 w8\tb")

    def read_in(cache: str = "", tokenizer: Tokenizer = words, **how: Any) -> TaskData:
        task = classify.Classify(**{"train": train, "dev": dev, "length": 8, **how})
        return TaskData.of(task, NETWORK, tokenizer, 0, cache)

    return write, read_in


def test_what_a_run_keeps_of_its_files(read_in: Any, tmp_path: Path) -> None:
    """Of one file for both, which rows are meant."""
    _, read = read_in
    assert read().facts() == {
        f"{tmp_path}/train.tsv": {"split": "train", "records": 3, "examples": 3, "tokens": 12, "longest": 5},
        f"{tmp_path}/dev.tsv": {"split": "dev", "records": 2, "examples": 2, "tokens": 7, "longest": 4},
    }
    both = f"{tmp_path}/train.tsv"
    assert list(read(dev=both).facts()) == [f"{both} (train)", f"{both} (dev)"]
    assert list(read(dev=()).facts()) == [both]
    assert read().task.labels == ("a", "b")


def test_the_loss_of_a_check_is_that_of_its_terms_by_their_weights(
    read_in: Any, words: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = read_in[1]()
    objective = fresh(data.task, NETWORK, words, 0)
    objective.weights = {"classify": 3.0, "other": 2.0, "none": 5.0}
    shares = np.array([[0.9, 0.1], [0.8, 0.2]], np.float32)
    told = {"probabilities": shares}, {"classify": 0.5, "other": 0.25}
    monkeypatch.setattr(examples, "predict_all", lambda *_, **__: told)
    recipe = Finetuning(task=data.task, init="x")
    job: Any = SimpleNamespace(objective=objective, recipe=recipe, ranks=Ranks(torch.device("cpu")), state=None)
    found = data.validate(job, 0)
    assert (found["validation"], found["accuracy"]) == (3 * 0.5 + 2 * 0.25, 50.0)
    monkeypatch.setattr(finish, "predict_all", lambda *_, **__: told)
    assert data.dev
    left = finish._scored(job, objective, data, data.dev, tmp_path / "predictions")  # type: ignore[arg-type]
    assert {name: left[name] for name in found} == found
    assert left["guessing"]["accuracy"] == 50.0
    assert (tmp_path / "predictions/predictions.tsv").exists()
    assert read_in[1](dev=()).validate(job, 0) == {}


def test_checks_in_words(read_in: Any) -> None:
    """The score that counts first, at most four of them, none of which less is better."""
    own = read_in[1](metrics=("macro_f1", "accuracy"))
    found = {
        "validation": 0.51234,
        "accuracy": 50.0,
        "total": 2,
        "macro_f1": 33.333,
        "x_error": 1.0,
        "p": 1,
        "q": 2,
        "r": 3,
    }
    assert own.describe(own, found) == "dev loss 0.5123 (macro_f1 33.33, accuracy 50.00, p 1.00, q 2.00)"


def test_dev_files_must_tell_the_score_that_counts(read_in: Any) -> None:
    write, read = read_in
    read().check("accuracy")
    with pytest.raises(
        RecipeError, match="best: found acuracy; wanted a score for which higher is better; did you mean `accur"
    ):
        read().check("acuracy")
    read(dev=()).check("whatever")
    silent = read(dev=write("silent.tsv", "w1\t", "w2\t"))
    with pytest.raises(DataError, match=r"silent.tsv: have no answers; wanted files for validation; leave task.dev"):
        silent.check("accuracy")
    for name in ("total", "best_thresh", "squared_error"):
        with pytest.raises(RecipeError, match="best: found"):
            read()._check({name: 1.0, "f1": 2.0}, name)


@pytest.mark.usefixtures("details")
def test_features_are_reused_unless_what_makes_them_changed(
    read_in: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How the loss is weighed makes no others; the length, the files and the tokenizer do."""
    write, read = read_in
    cache = str(tmp_path / "cache")
    folders = lambda: len(list((tmp_path / "cache").glob("classify-*-*")))  # noqa: E731
    first = read(cache)
    assert folders() == 2
    assert "cached features are used" not in capsys.readouterr().err
    again = read(cache, metrics=("accuracy",), class_weights="balanced")
    assert folders() == 2
    assert capsys.readouterr().err.count("cached features are used") == 2
    assert (again.train.features.ids == first.train.features.ids).all()
    read(cache, length=7)
    assert folders() == 4
    write("dev.tsv", "w1 w1 w1\ta", "w2 w8\tb")
    read(cache)
    assert folders() == 5
    assert not list(read("").train.features.ids[:0])
    assert folders() == 5
    (tmp_path / "other.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in (1, 0, *range(2, 9)))]) + "\n")
    other = read(cache, Tokenizer.load(tmp_path / "other.txt"))
    assert folders() == 7
    assert (other.train.features.ids != first.train.features.ids).any()


def test_texts_that_the_tokenizer_does_not_know_are_refused(
    read_in: Any, words: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before their features are kept, which may then be reused; of those the texts are not known."""
    write, read = read_in
    cache, strange = tmp_path / "cache", write("strange.tsv", "å w1\ta", "å w2\tb")
    for folder in ("", str(cache)):
        with pytest.raises(DataError, match=r"strange\.tsv: 50\.0% .* \(å\); .* `max_unknown=0\.5` allows it"):
            read(folder, train=strange)
    assert not list(cache.glob("classify-*"))
    task = classify.Classify(train=strange, length=8)
    TaskData.of(task, NETWORK, words, 0, str(cache), 0.5)
    assert "strange.tsv: 50.0% of its tokens are unknown to the tokenizer (å)" in " ".join(
        capsys.readouterr().err.split()
    )
    with pytest.raises(
        DataError, match=r"strange\.tsv: 50\.0% of its tokens are unknown to the tokenizer; wanted at most"
    ):
        TaskData.of(task, NETWORK, words, 0, str(cache))
