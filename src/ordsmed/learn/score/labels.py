"""Scores of labels and numbers: accuracy, F1, Matthews, Pearson, Spearman, and baselines without a model.

    gold, predicted  ->  scored(("accuracy", "f1"), gold, predicted)  ->  {"accuracy": 0.91, "f1": 0.93}

Labels are numbers from 0. Undefined scores, as of a single class or of constant predictions, are 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ordsmed.base.errors import RunError

POSITIVE = 1  # the class of binary F1


@dataclass(frozen=True)
class ClassScore:
    label: str
    precision: float
    recall: float
    f1: float
    support: int  # number of its examples
    predicted: dict[str, int]  # predictions for its examples, by label


def accuracy(gold: ArrayLike, predicted: ArrayLike) -> float:
    right, guess = _same_shape(gold, predicted)
    return float((right == guess).mean())


def f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the F1 of the positive class, 2 TP / (2 TP + FP + FN)."""
    right, guess = _same_shape(gold, predicted)
    return _class_f1(right == POSITIVE, guess == POSITIVE)


def macro_f1(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean F1 of all classes that are right or predicted anywhere."""
    right, guess = _same_shape(gold, predicted)
    return float(np.mean([_class_f1(right == label, guess == label) for label in np.union1d(right, guess)]))


def matthews(gold: ArrayLike, predicted: ArrayLike) -> float:
    right, guess = _same_shape(gold, predicted)
    classes = np.union1d(right, guess)
    of_right = np.array([(right == label).sum() for label in classes], np.float64)
    of_guess = np.array([(guess == label).sum() for label in classes], np.float64)
    total = float(len(right))
    variances = (total**2 - of_right @ of_right) * (total**2 - of_guess @ of_guess)
    shared = float((right == guess).sum()) * total - of_right @ of_guess
    return float(shared / np.sqrt(variances)) if variances else 0.0


def pearson(gold: ArrayLike, predicted: ArrayLike) -> float:
    right, guess = _finite(gold, predicted)
    if np.ptp(right) == 0 or np.ptp(guess) == 0:
        return 0.0
    return float(np.clip(_direction(right) @ _direction(guess), -1.0, 1.0))


def spearman(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Return the linear correlation of ranks; equal values share their mean rank."""
    right, guess = _finite(gold, predicted)
    return pearson(_ranks(right), _ranks(guess))


def squared_error(gold: ArrayLike, predicted: ArrayLike) -> float:
    right, guess = _finite(gold, predicted)
    return float(np.square(right - guess).mean())


METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman, squared_error)
}


def scored(names: Sequence[str], gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    return {name: METRICS[name](gold, predicted) for name in names}


def report(labels: Sequence[str], gold: ArrayLike, predicted: ArrayLike) -> list[ClassScore]:
    """Return the scores of each class, in the order of the labels; undefined ones are 0."""
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, _same_shape(gold, predicted), 1)
    return [_class_score(number, labels, counts) for number in range(len(labels))]


def majority(train: ArrayLike, gold: ArrayLike) -> NDArray[np.int64]:
    """Return the most frequent class of the training data (the first of equally frequent ones) for every row."""
    return np.full(len(np.asarray(gold)), np.bincount(np.asarray(train, np.int64)).argmax(), np.int64)


def mean_guess(train: ArrayLike, gold: ArrayLike) -> NDArray[np.float64]:
    """Return the mean of the training data for every row, the best constant by squared error."""
    return np.full(len(np.asarray(gold)), np.asarray(train, np.float64).mean())


def _same_shape(gold: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    right, guess = np.asarray(gold), np.asarray(predicted)
    if right.shape != guess.shape or right.ndim != 1 or not right.size:
        raise ValueError(f"predicted: found {guess.shape}; wanted one for each of {right.shape}, at least one")
    return right, guess


def _finite(gold: ArrayLike, predicted: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    right, guess = _same_shape(np.asarray(gold, np.float64), np.asarray(predicted, np.float64))
    if not np.isfinite(guess).all():
        row = int(np.flatnonzero(~np.isfinite(guess))[0])
        raise RunError("score", f"prediction {row + 1:,} is {guess[row]}", "numbers", "lower the learning rate")
    return right, guess


def _class_f1(right: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    both = int(right.sum() + predicted.sum())
    return 2 * int((right & predicted).sum()) / both if both else 0.0


def _class_score(number: int, labels: Sequence[str], counts: NDArray[np.int64]) -> ClassScore:
    hits, support, times = (int(n) for n in (counts[number, number], counts[number].sum(), counts[:, number].sum()))
    predicted = {label: int(count) for label, count in zip(labels, counts[number], strict=True)}
    shares = (hits / times if times else 0.0, hits / support if support else 0.0)
    return ClassScore(
        labels[number], *shares, 2 * hits / (times + support) if times + support else 0.0, support, predicted
    )


def _direction(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean()
    centred /= np.abs(centred).max()  # squares of tiny numbers would underflow
    unit: np.ndarray[Any, np.dtype[np.float64]] = centred / np.linalg.norm(centred)
    return unit


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, rank_of, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[rank_of]
