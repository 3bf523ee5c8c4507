"""Similarity: correlations with people's scores, of files in several forms; what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kit.language_models import SENTENCES, elmo_made, hub_folder
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.measure.evaluation.evaluate import ComputeOptions, ask, evaluate
from ordsmed.measure.probes.similarity import Similarity
from ordsmed.use.embed import Form, embedded
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model

CPU = ComputeOptions(device="cpu", threads=1)
PAIRS = [(a, b, float((len(a) * 7 + len(b) * 3) % 11)) for a in SENTENCES for b in SENTENCES if a < b]


def tsv(path: Path) -> Path:
    rows = ["\t".join(map(str, row)) for row in PAIRS]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hub_folder("bert", tmp_path_factory.mktemp("models") / "bert")


def test_correlations(model: Path, tmp_path: Path) -> None:
    stats = pytest.importorskip("scipy.stats")
    [result] = evaluate([str(model)], [Similarity(files=(str(tsv(tmp_path / "a.tsv")),))], means=CPU)
    trained = open_model(Origin.of(str(model)), None)
    sides = [
        np.stack([row.vectors for row in embedded(trained, [pair[n] for pair in PAIRS], Form(of="sentences"))])
        for n in (0, 1)
    ]
    cosines = (sides[0] * sides[1]).sum(1) / np.prod([np.linalg.norm(side, axis=1) for side in sides], 0)
    gold = [pair[2] for pair in PAIRS]
    facts = result.finding.facts
    assert facts["spearman"] == pytest.approx(100 * stats.spearmanr(gold, cosines)[0], abs=1e-3)
    assert facts["pearson"] == pytest.approx(100 * stats.pearsonr(gold, cosines)[0], abs=1e-3)
    assert facts["pairs"] == len(PAIRS)
    assert 5 < result.finding.errors["spearman"] < 40
    assert result.probe.as_line(result.records[3]) == {
        "pair": f"{tmp_path}/a.tsv:5",
        "score": PAIRS[3][2],
        "similarity": pytest.approx(float(cosines[3]), abs=1e-5),
    }


def test_other_columns_and_forms(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"a": a, "b": b, "label": score}) for a, b, score in PAIRS]
    (tmp_path / "b.jsonl").write_text("\n".join([*rows, rows[0]]))
    probes = [
        Similarity(files=(str(tsv(tmp_path / "a.tsv")),)),
        Similarity(files=(str(tmp_path / "b.jsonl"),), first="a", second="b", score="label"),
    ]
    first, second = evaluate([str(model)], probes, means=CPU)
    assert [row.to_list()[1:] for row in second.records[:-1]] == [row.to_list()[1:] for row in first.records]
    assert "b.jsonl: 1 pair repeated: each counts" in capsys.readouterr().err


def test_an_elmo_has_vectors_too(tmp_path: Path) -> None:
    result = ask(elmo_made(tmp_path / "elmo"), Similarity(files=(str(tsv(tmp_path / "a.tsv")),)))
    assert -100 < result.finding.facts["spearman"] < 100
    assert result.way == "mean"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sentence1\tsentence2\nit\tit\n", "tsv:2: has no `score`"),
        ("sentence1\tsentence2\tscore\nit\tit\thigh\n", "tsv:2: `score` is 'high'"),
        ("sentence1\tsentence2\tscore\nit\tit\tnan\n", "tsv:2: `score` is 'nan'"),
        ("sentence1\tsentence2\tscore\n\tit\t1\n", "tsv:2: `sentence1` is empty"),
        ("sentence1\tsentence2\tscore\nit\tit\t1\nit\ta\t1\n", "2 pairs with the same score"),
    ],
)
def test_files_that_are_refused(text: str, problem: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(DataError, match=problem):
        evaluate([str(model)], [Similarity(files=(str(tmp_path / "a.tsv"),))], means=CPU)


def test_texts_that_the_tokenizer_does_not_know(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\tscore\n猫\t犬\t1\nit\t犬\t2\n")
    probe = Similarity(files=(str(tmp_path / "a.tsv"),))
    with pytest.raises(DataError, match="of its tokens are unknown to the tokenizer"):
        evaluate([str(model)], [probe], means=CPU)


def test_the_way_of_likelihoods_is_refused(tmp_path: Path) -> None:
    from ordsmed.measure.evaluation.recipe import named

    with pytest.raises(RecipeError, match="--way: is not an option of any named probe"):
        named([["similarity", str(tmp_path)]], way="causal")
