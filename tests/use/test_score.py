"""Scores of anybody's predictions, no model being at hand."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.learn.embedding import outputs
from ordsmed.learn.score import spans
from ordsmed.learn.tasks.tag import Tag
from ordsmed.use.score import score

GOLD = "Rome\tB-LOC\nsees\tO\nAnn\tB-PER\nLee\tI-PER\n\n"


def test_tags_that_mark_spans_are_scored_as_spans(tmp_path: Path) -> None:
    gold, said = tmp_path / "gold.conll", tmp_path / "said.conll"
    gold.write_text(GOLD)
    said.write_text(GOLD.replace("I-PER", "O"))
    found = score("tag", [str(gold)], said)
    assert (found["f1"], found["precision"], found["recall"]) == (50, 50, 50)
    assert found["accuracy"] == 75


@pytest.mark.parametrize("name", get_args(spans.Scheme))
def test_strict_scores_are_seqevals(tmp_path: Path, name: spans.Scheme) -> None:
    pytest.importorskip("seqeval")
    from seqeval import scheme
    from seqeval.metrics import f1_score, precision_score, recall_score

    draw = random.Random(name)
    kinds = ["B-X", "I-X", "B-Y", "I-Y", "O", "O"]
    raw = [[draw.choice(kinds) for _ in range(9)] for _ in range(60)]
    gold = [spans.converted(tags, name) for tags in raw]
    known = sorted({tag for tags in gold for tag in tags})
    said = [[tag if draw.random() < 0.8 else draw.choice(known) for tag in tags] for tags in gold]
    for path, every in (("gold.conll", gold), ("said.conll", said)):
        text = "\n\n".join("\n".join(f"w\t{tag}" for tag in tags) for tags in every)
        (tmp_path / path).write_text(text + "\n")
    found = score("tag", [str(tmp_path / "gold.conll")], tmp_path / "said.conll")
    how = {"mode": "strict", "scheme": getattr(scheme, name)}
    for rate, theirs in (("f1", f1_score), ("precision", precision_score), ("recall", recall_score)):
        assert found[f"strict_{rate}"] == pytest.approx(100 * theirs(gold, said, **how))
    assert found["strict_f1"] != pytest.approx(found["f1"])


def test_predictions_for_other_rows_are_refused(tmp_path: Path) -> None:
    data, said = tmp_path / "data.tsv", tmp_path / "predictions.tsv"
    data.write_text("text\tlabel\ngood\ta\nbad\tb\n")
    said.write_text("line\tpredicted\tgold\ta\tb\n2\ta\ta\t0.9\t0.1\n3\ta\tb\t0.8\t0.2\n")
    assert score("classify", [str(data)], said)["accuracy"] == 50
    said.write_text(said.read_text().replace("3\ta\tb", "3\ta\t"))  # what is right was not known then
    assert score("classify", [str(data)], said)["accuracy"] == 50
    said.write_text(said.read_text().replace("3\ta\t", "3\ta\ta"))
    found = r"predictions\.tsv: made for other data: 1 of 2 right answers have changed, such as 3: from `a` to `b`"
    with pytest.raises(DataError, match=found):
        score("classify", [str(data)], said)


def test_a_label_mended_since_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, said = tmp_path / "data.tsv", tmp_path / "predictions.tsv"
    data.write_text("text\tlabel\n" + "".join(f"t\t{n % 2}\n" for n in range(20)))
    rows = [f"{n + 2}\t{n % 2}.0\t{n % 2}.0\n" for n in range(20)]
    said.write_text("line\tpredicted\tgold\n" + "".join(["2\t1\t1\n", *rows[1:]]))
    found = score("classify", [str(data)], said, ["task.number=true", 'task.metrics=["pearson","squared_error"]'])
    assert found["squared_error"] == pytest.approx(0.05)
    assert "1 of 20 right answers have changed, such as 2: from `1` to `0`" in capsys.readouterr().err


@pytest.mark.parametrize("head", ["", "index\tprediction\n"])
def test_a_number_of_minus_one_is_a_prediction(head: str, tmp_path: Path) -> None:
    rows = [("w1 w2", "w3", "2.5"), ("w1", "w1", "5"), ("w4", "w5", "0"), ("w6", "w7", "-1.0")]
    data, said = tmp_path / "dev.tsv", tmp_path / "said.tsv"
    data.write_text("\n".join(["sentence1\tsentence2\tscore", *map("\t".join, rows)]) + "\n")
    predicted = ["2.0", "4.5", "-1.0", "3.0"]
    said.write_text(head + "".join(f"{n}\t{one}\n" if head else f"{one}\n" for n, one in enumerate(predicted)))
    found = score("sts-b", [str(data)], said)
    assert found["pearson"] == pytest.approx(100 * float(np.corrcoef([2.5, 5, 0], [2.0, 4.5, -1.0])[0, 1]))


def test_a_folder_of_predictions_is_refused_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "predictions.json").write_text("{}")
    with pytest.raises(RecipeError, match=r"is a folder \(predictions\.json\); wanted a file of predictions"):
        score("squad-1.1", ["a.json"], tmp_path)


def test_null_odds_of_other_questions_are_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, said, odds = (tmp_path / f"{name}.json" for name in ("data", "said", "null_odds"))
    data.write_text(
        '[{"id": "q", "question": "Who?", "context": "Ann sees.", '
        '"answers": [{"text": "Ann", "answer_start": 0}], "is_impossible": false}]'
    )
    said.write_text('{"q": "Ann"}')
    odds.write_text('{"q": -1.0}')
    assert score("squad-2.0", [str(data)], said)["best_f1"] == 100
    assert "null_odds.json: used for the best_ scores" in capsys.readouterr().err
    odds.write_text('{"other": -1.0}')
    assert "best_f1" not in score("squad-2.0", [str(data)], said)
    assert "null_odds.json: not used" in capsys.readouterr().err


def test_an_unknown_task_is_refused_with_the_near_name() -> None:
    with pytest.raises(RecipeError, match=r"squad-1\.1"):
        score("squad-1.2", ["a"], "b")


def test_how_many_are_scored_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, said = tmp_path / "data.tsv", tmp_path / "said.txt"
    data.write_text("text\tlabel\ngood\ta\nbad\tb\nworse\t\n")
    said.write_text("a\na\nb\n")
    assert score("classify", [str(data)], said)["accuracy"] == 50
    assert "scored: 2 records of 3; the right answer of the others is not known\n" in capsys.readouterr().err
    gold = tmp_path / "gold.conll"
    gold.write_text(GOLD + "Rome\t\n\n" + GOLD)
    assert Tag().count_scored(Tag().records([str(gold)])) == 2
    pairs = SimpleNamespace(gold=np.array([1.0, np.nan]))
    assert outputs.count_scored(pairs, by_scores=True) == 1  # type: ignore[arg-type]
