"""Asking a fine-tuned model about files: what is written, what is scored, what is refused before it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kit.makers import SPECIAL, WORDS
from kit.task_files import LABELS, task_files
from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import SETTINGS, TOKENIZER, WEIGHTS
from ordsmed.learn.objective import fresh
from ordsmed.learn.objectives import mlm
from ordsmed.learn.tasks import classify, squad, tag
from ordsmed.nn.model import own_tensors
from ordsmed.nn.models import bert
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.use import predict as predicts
from ordsmed.use.predict import evaluate, open_task, predict
from ordsmed.weights import weights
from ordsmed.weights.foreign import Networks


def model_of(folder: Path, **learned: Any) -> Path:
    """A model that answers at random."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(WORDS))]) + "\n")
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    network = bert.Bert(width=16, layers=1, heads=2, inner=16, positions=64)
    (what,) = learned.values()
    weights.write(folder / WEIGHTS, own_tensors(fresh(what, network, tokenizer, 3)))
    files.write_text(folder / SETTINGS, settings.write(Networks(model=network, **learned)))
    tokenizer.save(folder / TOKENIZER)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_files(tmp_path_factory.mktemp("asked"))


@pytest.fixture(scope="module")
def model(data: Path) -> Path:
    task = classify.Classify(train="none", dev=str(data / "dev.tsv"), labels=LABELS, length=40)
    return model_of(data / "model", task=task)


def test_scores_are_those_of_what_it_says(model: Path, data: Path, tmp_path: Path) -> None:
    facts, lines = evaluate(model, [str(data / "dev.tsv")], device="cpu")
    assert evaluate(model, device="cpu")[0] == evaluate(model, [""], device="cpu")[0] == facts
    assert list(facts) == ["loss", "accuracy", "macro_f1"]
    _, _, told = predict(model, [str(data / "dev.tsv")], tmp_path / "deep" / "out", scores=True, device="cpu")
    assert told[0] == f"{tmp_path}/deep/out: predictions.tsv of 21 records"
    assert told[1] == "  scored: 21 records"
    assert [line.split(":")[0] for line in told[2:]] == ["  accuracy", "  macro_f1"]
    rows = [line.split("\t") for line in (tmp_path / "deep/out/predictions.tsv").read_text().splitlines()]
    head, gold = rows[0], [line.split("\t")[1] for line in (data / "dev.tsv").read_text().splitlines()[1:]]
    assert [row[head.index("gold")] for row in rows[1:]] == gold
    shares = np.array([[float(row[head.index(label)]) for label in LABELS] for row in rows[1:]])
    assert shares.sum(1) == pytest.approx(1, abs=1e-3)
    said = [LABELS[place] for place in shares.argmax(1)]
    assert [row[head.index("predicted")] for row in rows[1:]] == said
    assert facts["accuracy"] == pytest.approx(100 * np.mean([a == b for a, b in zip(said, gold, strict=True)]))
    own = shares[np.arange(21), [LABELS.index(label) for label in gold]]
    assert facts["loss"] == pytest.approx(-np.log(own).mean(), rel=1e-3)
    kept = files.read_json(tmp_path / "deep/out/scores.json")
    assert {"loss": kept.pop("validation"), **kept} == facts
    assert lines[0] == "  scored: 21 records"
    assert lines[1].startswith("  loss: ")
    assert len(lines) > 5, "with its tables"


def test_nothing_is_scored_unasked_or_unknown(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = tmp_path / "silent.tsv"
    silent.write_text("".join(line.split("\t")[0] + "\n" for line in (data / "dev.tsv").read_text().splitlines()))
    assert len(predict(model, [str(data / "dev.tsv")], tmp_path / "a", device="cpu").lines) == 1
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["predictions.tsv"]
    capsys.readouterr()
    assert len(predict(model, [str(silent)], tmp_path / "b", scores=True, device="cpu").lines) == 1
    assert f"{silent}: no labels, so nothing is scored" in capsys.readouterr().err
    assert not (tmp_path / "b" / "scores.json").exists()
    shares = [
        [row.split("\t")[3:] for row in (tmp_path / name / "predictions.tsv").read_text().splitlines()[1:]]
        for name in "ab"
    ]
    assert shares[0] == shares[1]
    with pytest.raises(RecipeError, match=r"silent.tsv: has no labels; wanted labeled files; `ordsmed pred"):
        evaluate(model, [str(silent)], device="cpu")
    alone = model_of(tmp_path / "alone", task=classify.Classify(train="none", labels=LABELS, length=40))
    with pytest.raises(RecipeError, match="alone: names no dev files; wanted files to evaluate on"):
        evaluate(alone, device="cpu")


def test_what_stands_is_replaced_on_request_alone(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("precious")
    with pytest.raises(RecipeError, match="out: already exists; wanted a new folder; name another, or add --anew"):
        predict(model, [str(data / "dev.tsv")], out, device="cpu")
    assert (out / "mine").exists()
    predict(model, [str(data / "dev.tsv")], out, anew=True, device="cpu")
    assert [path.name for path in out.iterdir()] == ["predictions.tsv"]
    for odd in ("length=8", str(tmp_path / "rate=3")):
        with pytest.raises(RecipeError, match=r"is not an output folder; wanted RUN FILE... OUT; settings are written"):
            predict(model, [str(data / "dev.tsv")], odd, device="cpu")
    predict(model, [str(data / "dev.tsv")], tmp_path / "rate=3" / "out", device="cpu")


def test_a_task_is_opened_with_what_may_change(model: Path, data: Path, tmp_path: Path) -> None:
    asked = open_task(model, ["task.length=64", "task.metrics=['matthews']"], device="cpu", threads=1)
    assert (asked.settings.length, asked.settings.metrics, asked.settings.labels) == (64, ("matthews",), LABELS)
    assert (asked.task.training, asked.trained.device.type) == (False, "cpu")
    same = open_task(model, [f"task.labels={list(LABELS)}"], device="cpu", threads=1)  # what it has learned
    assert same.settings == open_task(model, device="cpu", threads=1).settings
    assert not hasattr(asked.trained.within(), "fast_dtype")
    half = open_task(model, device="cpu", precision="bf16")
    with half.trained.within():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    pretrained = model_of(tmp_path / "mlm", objective=mlm.Mlm())
    for path, how, said in (
        (model, {"overrides": ["task.length=65"]}, "task.length: found 65, more than the model's 64 positions; use "),
        (model, {"overrides": ["task.labels=['a']"]}, "`task.labels=['a']`: cannot change after training; "),
        (model, {"overrides": ["task.lenght=3"]}, "`task.lenght=3`: unknown setting; wanted one of train, dev, "),
        (model, {"precision": "bf61"}, "--precision: found bf61; wanted fp32 or bf16 or fp16 or int8; did you "),
        (model, {"verb": "answer"}, f"{model}: was fine-tuned for classify; wanted squad"),
        (
            pretrained,
            {},
            f"{pretrained}: has no task head; wanted a fine-tuned model; fine-tune it with `ordsmed "
            "finetune`; or evaluate any language model with --probe NAME FILE",
        ),
    ):
        with pytest.raises(RecipeError) as error:
            open_task(path, **how, device="cpu")  # type: ignore[arg-type]
        assert str(error.value).startswith(said)


def test_who_waits_for_16_bits_is_told(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {"bf16": 61.7}
    monkeypatch.setattr("ordsmed.weights.trained_model.slowdown_in", lambda precision, device: slow.get(precision))
    open_task(model, device="cpu", precision="bf16")
    assert "--precision: products in bf16 take 61.7 times as long as in fp32 here" in capsys.readouterr().err
    open_task(model, device="cpu")
    assert "--precision" not in capsys.readouterr().err


def test_tables_stand_in_columns() -> None:
    found = predicts._tables([("By label", ["label", "f1", "count"], [["low", 12.345, 7], ["mixed", 100.0, 12]])])
    assert found == ["", "By label", "  label      f1  count", "  low     12.35      7", "  mixed  100.00     12"] or (
        found == ["", "By label", "  label      f1  count", "  low     12.34      7", "  mixed  100.00     12"]
    )


def test_spans_are_predicted_in_their_file_s_form(data: Path, tmp_path: Path) -> None:
    task = tag.Tag(train="none", labels=("O", "B-HIGH", "I-HIGH"), file_scheme="IOB2", length=40)
    run = model_of(tmp_path / "tagger", task=task)
    _, _, told = predict(run, [str(data / "dev.conll")], tmp_path / "out", scores=True, device="cpu")
    made = tmp_path / "out" / "dev.conll"
    assert told[0].endswith(" of 21 records")
    words = [line.split()[0] for line in (data / "dev.conll").read_text().splitlines() if line]
    assert [line.split()[0] for line in made.read_text().splitlines() if line] == words
    assert json.loads((tmp_path / "out/scores.json").read_text()).keys() >= {"f1", "accuracy"}


def test_how_a_head_looks_for_answers_may_change(tmp_path: Path) -> None:
    """Beams are of the network that was opened, not of its settings alone."""
    run = model_of(tmp_path / "joint", task=squad.Squad(train="none", head="joint", length=40))
    found = [open_task(run, [f"task.beam={beam}"], device="cpu").task for beam in (2, 3)]
    assert [getattr(task, "beam", None) for task in found] == [2, 3]
