"""Predicted labels and numbers: scored, written in usual formats, and read, from files of other programs too.

records, predictions -> scores; predictions.tsv (line, predicted, gold, a probability per label); GLUE submissions
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.files import write_text
from ordsmed.base.say import many, say
from ordsmed.learn.classification.inputs import numbers
from ordsmed.learn.classification.records import LabeledFiles, Records, sorted_labels
from ordsmed.learn.score import labels as scores
from ordsmed.text.labelled import glue
from ordsmed.text.labelled.tables import Table
from ordsmed.text.read import lines

OF_NUMBERS = ("pearson", "spearman", "squared_error")
LOSSES = ("squared_error",)  # lower is better, and not a share
COLUMNS, GLUE_COLUMNS = ("line", "predicted", "gold"), ("index", "prediction")  # first columns of files of predictions
MAX_CORRECTED = 0.1  # share of lines whose right answer may have been corrected since the predictions were written


@dataclass(frozen=True)
class LabelPredictions:
    values: list[Any]  # labels or numbers
    shares: NDArray[np.float32] | None = None  # [records, labels]  probability of each label, if known


def score(
    settings: LabeledFiles, metrics: Sequence[str], records: Records, predictions: LabelPredictions
) -> dict[str, float]:
    if not records.known:
        return {}
    if not settings.number:
        check_f1(metrics, settings.labels or sorted_labels(records.gold))
    _, right, predicted = _numbered(settings, records, predictions)
    raw = scores.scored(metrics, right, predicted)
    return {name: value if name in LOSSES else 100 * value for name, value in raw.items()}


def check_f1(metrics: Sequence[str], labels: Sequence[str]) -> None:
    """Raise an error if the F1 of one label is used with more than two labels."""
    if "f1" in metrics and len(labels) != 2:
        raise RecipeError("task.metrics", f"f1 of {len(labels)} labels", "two", "use macro_f1")


def _numbered(
    settings: LabeledFiles, records: Records, predictions: LabelPredictions
) -> tuple[list[str], NDArray[Any], NDArray[Any]]:
    """Return all labels, and right and predicted labels as their numbers, for records with a known answer.

    Labels that the task does not have come last. For a task that predicts numbers, return no labels and the numbers.
    """
    right, predicted = [[column[n] for n in records.known] for column in (records.gold, predictions.values)]
    if settings.number:
        return [], numbers(right), np.array(predicted, np.float64)
    labels = list(dict.fromkeys([*(settings.labels or sorted_labels(right)), *sorted_labels([*right, *predicted])]))
    codes = {label: number for number, label in enumerate(labels)}
    return labels, np.array([codes[label] for label in right]), np.array([codes[label] for label in predicted])


def details(
    settings: LabeledFiles, records: Records, predictions: LabelPredictions
) -> list[tuple[str, list[str], list[list[Any]]]]:
    if not records.known:
        return []
    labels, right, predicted = _numbered(settings, records, predictions)
    if settings.number:
        rows = (("right", right), ("predicted", predicted), ("too high by", predicted - right))
        facts = [[name, *(float(f(values)) for f in (np.mean, np.std, np.min, np.max))] for name, values in rows]
        return [("numbers", ["", "mean", "deviation", "lowest", "highest"], facts)]
    counts = scores.report(labels, right, predicted)
    shares = [[c.label, 100 * c.precision, 100 * c.recall, 100 * c.f1, c.support] for c in counts]
    return [
        ("labels", ["label", "precision", "recall", "f1", "examples"], shares),
        ("right (rows) and predicted", ["", *labels], [[c.label, *c.predicted.values()] for c in counts]),
    ]


def write(settings: LabeledFiles, folder: Path, records: Records, predictions: LabelPredictions) -> list[Path]:
    """Write a table of all predictions and, for test splits of GLUE, the files of a submission."""
    predicted = [f"{value:.9g}" for value in predictions.values] if settings.number else predictions.values
    columns = [records.locations, predicted, records.gold]
    labels: tuple[str, ...] = ()
    if predictions.shares is not None:
        labels = settings.labels
        columns += [[f"{share:.9g}" for share in shares] for shares in predictions.shares.T]
    written, begin = [folder / "predictions.tsv"], 0
    write_text(written[0], "".join("\t".join(row) + "\n" for row in [(*COLUMNS, *labels), *zip(*columns, strict=True)]))
    for part in records.parts:
        predicted = predictions.values[begin : begin + len(part.lines)]
        begin += len(part.lines)
        if part.indexes:
            values = predicted if settings.number else [settings.labels.index(label) for label in predicted]
            written.append(glue.hand_in(folder, glue.named(settings.name), part.split, part.indexes, values))
    return written


def read(settings: LabeledFiles, path: Path, records: Records) -> LabelPredictions:
    """Read predictions that `ordsmed` wrote, a GLUE submission, or a file with a label per line."""
    rows = [line.split("\t") for line in lines(path, settings.errors)]
    while rows and rows[-1] == [""]:
        rows.pop()
    head = tuple(rows[0]) if rows else ()
    if head[: len(COLUMNS)] == COLUMNS or head == GLUE_COLUMNS:
        keys = records.locations if head != GLUE_COLUMNS else records.indexes or [str(n) for n in range(len(records))]
        by_key = {row[0]: row[1] for row in rows[1:] if len(row) > 1}
        if head != GLUE_COLUMNS:
            _check_gold(settings, path, rows, records)
        written = [by_key.pop(key, "") for key in keys]
        if by_key:
            raise DataError(path, f"a prediction for `{next(iter(by_key))}`", "predictions only for rows of the data")
    else:
        written = ["\t".join(row) for row in rows]
    return LabelPredictions(_decoded(settings, path, written, records, len(rows)))


def _check_gold(settings: LabeledFiles, path: Path, rows: Sequence[Sequence[str]], records: Records) -> None:
    """Raise an error if many right answers in a file of predictions differ from those of the records."""
    right = dict(zip(records.locations, records.gold, strict=True))
    pairs = [(row[0], settings.plain_label(row[2]), right.get(row[0], "")) for row in rows[1:] if len(row) > 2]
    known = [(location, then, now) for location, then, now in pairs if then and now]
    changed = [
        (location, then, now) for location, then, now in known if not _is_same(then, now, number=settings.number)
    ]
    if not changed:
        return
    location, then, now = changed[0]
    problem = (
        f"{len(changed):,} of {len(known):,} right answers have changed, such as {location}: from `{then}` to `{now}`"
    )
    if len(changed) > MAX_CORRECTED * len(known):
        raise DataError(path, f"made for other data: {problem}", "predictions for this data")
    say(f"{path}: {problem}")


def _is_same(then: str, now: str, *, number: bool) -> bool:
    with contextlib.suppress(ValueError):
        return float(then) == float(now) if number else then == now
    return False


def _decoded(settings: LabeledFiles, path: Path, written: Sequence[str], records: Records, last: int) -> list[Any]:
    """Return labels or numbers, one for each record; `last` is the line number of the last row."""
    # a predicted number of -1 is valid; only a right answer of -1 means that it is unknown
    predicted = [*written] if settings.number else [settings.plain_label(label) for label in written]
    count = len(predicted) - predicted.count("")
    if count != len(records) or len(predicted) != len(records):
        forms = "one per row of the data: a label per line, or a file of `ordsmed` or of GLUE"
        raise DataError(path, f"{count:,} predictions for {many(len(records), 'row')}", forms)
    if settings.number:
        table = Table(path, list(range(last - len(predicted) + 1, last + 1)), {"prediction": predicted})
        return table.numbers("prediction")
    known = {*(settings.labels or records.gold), *records.gold}
    strange = [label for label in predicted if label not in known]
    if len(strange) == len(predicted):
        problem = f"none of the {many(len(predicted), 'prediction')} is a known label; the first is `{strange[0]}`"
        labels = ", ".join(settings.labels or sorted_labels(records.gold))
        raise DataError(path, problem, labels, "use predictions for this task")
    if strange:
        problem = f"{len(strange):,} of {len(predicted):,} predictions are unknown labels, such as `{strange[0]}`"
        say(f"{path}: {problem}; they count as wrong")
    return predicted
