"""Scores of labels: by hand, as in scikit-learn and scipy, and defined for constant predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ordsmed.base.errors import RunError
from ordsmed.learn.score import labels as scores
from ordsmed.text.labelled import glue


def test_two_classes_by_hand() -> None:
    gold, predicted = [1, 1, 1, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1, 0, 1]  # 3 hits, 1 missed, 1 false, 3 right no
    assert scores.accuracy(gold, predicted) == 6 / 8
    assert scores.f1(gold, predicted) == pytest.approx(6 / 8)
    assert scores.matthews(gold, predicted) == pytest.approx((3 * 3 - 1 * 1) / 16)
    assert scores.f1([1, 1, 0], [1, 0, 0]) == pytest.approx(2 / 3)
    assert scores.macro_f1([1, 1, 0], [1, 0, 0]) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_three_classes_by_hand() -> None:
    gold, predicted = [0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0]
    assert scores.macro_f1(gold, predicted) == pytest.approx((1 / 2 + 2 / 3 + 4 / 5) / 3)
    # (4 x 6 - (2 x 2 + 1 x 2 + 3 x 2)) / sqrt((36 - 14) (36 - 12))
    assert scores.matthews(gold, predicted) == pytest.approx(12 / math.sqrt(22 * 24))


def test_correlations_by_hand() -> None:
    assert scores.pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert scores.pearson([1e-200, 2e-200, 3e-200], [1e200, 2e200, 3e200]) == pytest.approx(1)
    assert scores.pearson([0, 1, 2, 3], [1, 0, 3, 2]) == pytest.approx(3 / 5)
    assert scores.spearman([1, 2, 3], [1, 10, 1000]) == pytest.approx(1)
    assert scores.spearman([1, 2, 3], [9, 4, 0]) == pytest.approx(-1)
    # ranks 1 2.5 2.5 4 against 1 2 3 4: 4.5 / sqrt(4.5 x 5)
    assert scores.spearman([1, 5, 5, 7], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert scores.squared_error([1, 2], [2, 4]) == 2.5


@pytest.mark.parametrize("seed", range(20))
def test_labels_as_scikit_learn(seed: int) -> None:
    known = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(seed)
    classes, size = int(draw.integers(2, 6)), int(draw.integers(10, 60))
    gold = draw.integers(0, classes, size)
    predicted = np.where(draw.random(size) < 0.5, gold, draw.integers(0, classes, size))
    assert scores.accuracy(gold, predicted) == pytest.approx(known.accuracy_score(gold, predicted))
    macro = known.f1_score(gold, predicted, average="macro", zero_division=0)
    assert scores.macro_f1(gold, predicted) == pytest.approx(macro)
    assert scores.matthews(gold, predicted) == pytest.approx(known.matthews_corrcoef(gold, predicted))
    yes, said = gold % 2, predicted % 2
    assert scores.f1(yes, said) == pytest.approx(known.f1_score(yes, said, zero_division=0))
    every = range(classes)
    shares = known.precision_recall_fscore_support(gold, predicted, labels=every, zero_division=0)
    found = scores.report([str(n) for n in every], gold, predicted)
    assert np.allclose([(r.precision, r.recall, r.f1, r.support) for r in found], np.transpose(shares))
    confusion = known.confusion_matrix(gold, predicted, labels=every)
    assert [list(r.predicted.values()) for r in found] == confusion.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_numbers_as_scipy(seed: int) -> None:
    known = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(seed)
    size = int(draw.integers(5, 80))
    gold = draw.integers(0, 6, size) * 10.0 ** draw.integers(-150, 150)  # many ties, any size
    predicted = gold * draw.normal() + np.abs(gold).max() * draw.normal(size=size).round(1) + 1e-200
    assert scores.pearson(gold, predicted) == pytest.approx(known.pearsonr(gold, predicted).statistic, abs=1e-12)
    assert scores.spearman(gold, predicted) == pytest.approx(known.spearmanr(gold, predicted).statistic, abs=1e-12)


def test_what_is_not_defined_is_nothing() -> None:
    assert scores.matthews([1, 1, 0], [1, 1, 1]) == 0
    assert scores.matthews([1, 1], [1, 1]) == 0
    assert scores.f1([0, 0], [0, 0]) == 0
    assert scores.macro_f1([0, 0], [0, 0]) == 1
    assert scores.macro_f1([0, 0, 0], [0, 0, 1]) == pytest.approx((0.8 + 0) / 2)
    assert scores.pearson([1, 2, 3], [0.1] * 3) == scores.spearman([1, 2, 3], [0.1] * 3) == 0
    assert scores.pearson([3], [4]) == 0


def test_what_cannot_be_scored() -> None:
    with pytest.raises(RunError, match="prediction 2 is nan"):
        scores.spearman([1, 2], [1, math.nan])
    for gold, predicted in (([1, 2], [1]), ([], [])):
        with pytest.raises(ValueError, match="predicted: found"):
            scores.accuracy(gold, predicted)


def test_a_report_tells_each_class_and_what_was_said_instead() -> None:
    bad, good, never = scores.report(["bad", "good", "never"], [0, 0, 0, 1], [0, 0, 1, 1])
    assert bad == scores.ClassScore("bad", 1.0, 2 / 3, 0.8, 3, {"bad": 2, "good": 1, "never": 0})
    assert good == scores.ClassScore("good", 0.5, 1.0, pytest.approx(2 / 3), 1, {"bad": 0, "good": 1, "never": 0})
    assert never == scores.ClassScore("never", 0.0, 0.0, 0.0, 0, {"bad": 0, "good": 0, "never": 0})


def test_guesses_without_a_model() -> None:
    assert scores.majority([2, 0, 2, 1], [0, 1]).tolist() == [2, 2]
    assert scores.majority([1, 0, 1, 0], [1]).tolist() == [0]
    assert scores.mean_guess([1.0, 2.0, 6.0], [5.0, 4.0]).tolist() == [3.0, 3.0]
    gold = [1, 1, 0, 1]
    assert scores.scored(("accuracy", "matthews"), gold, scores.majority([1], gold)) == {
        "accuracy": 0.75,
        "matthews": 0.0,
    }


def test_the_metrics_of_glue_are_there() -> None:
    assert {name for task in glue.TASKS.values() for name in task.metrics} <= set(scores.METRICS)


def test_correlations_where_nothing_was_to_tell_apart() -> None:
    assert scores.pearson([2, 2, 2], [1, 2, 3]) == scores.spearman([2, 2, 2], [1, 2, 3]) == 0
    assert scores.pearson([1, 2], [-1e300, -2e300]) == pytest.approx(-1)


def test_a_report_of_what_is_right_and_what_is_said_are_not_alike() -> None:
    """Rows are what is right: of two bad ones one was called good."""
    bad, good = scores.report(["bad", "good"], [0, 0, 1], [1, 0, 1])
    assert (bad.predicted, bad.precision, bad.recall) == ({"bad": 1, "good": 1}, 1.0, 0.5)
    assert (good.predicted, good.precision, good.recall) == ({"bad": 0, "good": 1}, 0.5, 1.0)
