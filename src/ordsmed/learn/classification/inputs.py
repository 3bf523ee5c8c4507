"""What a network reads of labeled texts: one text or two in a row of tokens, cut where they are too long.

    "Rain falls .", "It is wet ."  ->  [CLS] Rain falls . [SEP] It is wet . [SEP]

Two texts that are too long together are cut as transformers cuts them, the longer one first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.say import many, say
from ordsmed.data.features import Features, Text, framed
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.classification.records import LabeledFiles, Records
from ordsmed.text.tokenizer import Tokenizer

UNKNOWN = -1  # in place of a label's number


def features(settings: LabeledFiles, length: int, records: Records, reader: TextReader) -> Features:
    """Examples of at most so many tokens."""
    texts = [reader.pieces(column) for column in (records.texts, records.seconds) if column]
    special = reader.frame.joint(two=len(texts) == 2)
    if length <= special:
        problem = f"{length}, of which {special} are special tokens"
        raise RecipeError("task.length", problem, f"{special + 1} or more")
    sizes = [np.diff(pieces.starts) for pieces in texts]
    kept = longest_first(sizes[0], sizes[1] if len(sizes) == 2 else 0 * sizes[0], length - special)
    left = np.sum(kept, axis=0)
    if cut := int((left < np.sum(sizes, axis=0)).sum()):
        say(f"{cut:,} of {many(len(records), 'example')} are longer than {length} tokens, and cut (task.length)")
    parts = [Text(p.ids, p.starts[:-1], p.starts[:-1] + k) for p, k in zip(texts, kept[: len(texts)], strict=True)]
    if not special:
        parts[0] = _never_empty(parts[0], left == 0, reader.tokenizer)
    starts, ids, types, _ = framed(reader.frame, *parts)
    characters, words = reader.listed() or (None, None)
    known, labels = types if reader.frame.types else None, targets(settings, records)
    return Features(starts, ids.astype(np.int32), known, labels=labels, characters=characters, words=words)


def targets(settings: LabeledFiles, records: Records) -> NDArray[Any] | None:
    """What is right for each example, as the network learns it; -1, or no number, where it is not known."""
    if not records.known:
        return None
    if settings.number:
        low, high = settings.ends
        return ((numbers(records.gold) - low) / (high - low)).astype(np.float32)
    numbered = {label: number for number, label in enumerate(settings.labels)}
    strange = [gold for gold in records.gold if gold and gold not in numbered]
    path = records.parts[0].path if strange else None
    if strange and len(strange) == len(records.known):
        problem = f"none of its {many(len(strange), 'label')} was learned, the first is `{strange[0]}`"
        remedy = "name their column with task.label=; one that is not there: no label is known"
        raise DataError(str(path), problem, ", ".join(settings.labels), remedy)
    if strange:
        problem = f"{len(strange):,} of {len(records):,} labels are none of the training data's, as `{strange[0]}`"
        say(f"{path}: {problem}: what is said there counts as wrong")
    return np.array([numbered.get(gold, UNKNOWN) for gold in records.gold], np.int64)


def numbers(written: Sequence[str]) -> NDArray[np.float64]:
    """Not a number where nothing is written."""
    return np.array([float(value or "nan") for value in written])


def longest_first(first: Ints, second: Ints, room: int) -> tuple[Ints, Ints]:
    """How much of two texts of so many tokens stays: only the longer is cut while it is, then both by turns."""
    short = np.minimum(np.minimum(first, second), room // 2)
    long = room - short
    fits = first + second <= room
    first_is_longer = first > second
    kept_first, kept_second = np.where(first_is_longer, long, short), np.where(first_is_longer, short, long)
    return np.where(fits, first, kept_first), np.where(fits, second, kept_second)


def _never_empty(text: Text, empty: NDArray[np.bool_], tokenizer: Tokenizer) -> Text:
    """Where there are no special tokens, an empty text becomes one token: a head needs a state."""
    token = next((n for n in (tokenizer.end, tokenizer.stop, tokenizer.unknown, tokenizer.pad) if n is not None), 0)
    place = len(text.ids)
    first, last = np.where(empty, place, text.first), np.where(empty, place + 1, text.last)
    return Text(np.append(text.ids, token), first, last)
