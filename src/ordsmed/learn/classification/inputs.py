"""Features of labeled texts: tokens of one text or of a pair (data/examples.py), and the labels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.data.examples import examples
from ordsmed.data.features import Features
from ordsmed.data.pieces import TextReader
from ordsmed.learn.classification.records import LabeledFiles, Records

UNKNOWN = -1  # the number of an unknown label


def features(settings: LabeledFiles, length: int, records: Records, reader: TextReader) -> Features:
    columns = [column for column in (records.texts, records.seconds) if column]
    return replace(examples(columns, length, reader), labels=targets(settings, records))


def targets(settings: LabeledFiles, records: Records) -> NDArray[Any] | None:
    """Return the label of each example as the network learns it; None if no label is known.

    A class is its number, -1 if it is unknown. A number is scaled to 0 to 1, NaN if it is unknown.
    """
    if not records.known:
        return None
    if settings.number:
        low, high = settings.ends
        return ((numbers(records.gold) - low) / (high - low)).astype(np.float32)
    numbered = {label: number for number, label in enumerate(settings.labels)}
    strange = [gold for gold in records.gold if gold and gold not in numbered]
    path = records.parts[0].path if strange else None
    if strange and len(strange) == len(records.known):
        problem = f"none of its {many(len(strange), 'label')} is known to the model; the first is `{strange[0]}`"
        remedy = "name the column of labels with task.label=; if the file has none, name a missing column"
        raise DataError(str(path), problem, ", ".join(settings.labels), remedy)
    if strange:
        problem = f"{len(strange):,} of {len(records):,} labels are not in the training data, such as `{strange[0]}`"
        say(f"{path}: {problem}; all predictions for them count as wrong")
    return np.array([numbered.get(gold, UNKNOWN) for gold in records.gold], np.int64)


def numbers(written: Sequence[str]) -> NDArray[np.float64]:
    """Convert strings to numbers; an empty string is NaN."""
    return np.array([float(value or "nan") for value in written])
