"""Write rows of a store as TFRecords that the original BERT and ELECTRA code reads.

The rows are those of training: mlm_nsp (pairs and masks) or rtd (two segments, no masks).

    store -> rows -> tf.train.Example -> OUT/*.tfrecord
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, settings
from ordsmed.base.binary import examples, records
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import entries, import_choice, load
from ordsmed.base.say import Progress, many
from ordsmed.data.encode import Encoded, read_store
from ordsmed.learn.phases import Phase
from ordsmed.weights.export import check

NAME = "pretrain_data.tfrecord"  # the name ELECTRA's code expects; BERT's takes any
BATCH = 256  # rows per batch


def write_records(
    source: str,
    out: str | Path,
    kind: str,
    words: Sequence[str] = (),
    *,
    length: int = 128,
    split: str = "train",
    times: int = 1,
    parts: int = 1,
    seed: int = 0,
    packed: bool = False,
    anew: bool = False,
) -> list[str]:
    """Write a folder of TFRecords, whole or not at all, and return lines that describe it.

    `words` override settings of the objective `kind`. `packed` compresses the files with gzip.
    """
    encoded, target = read_store(source), Path(out)
    check(target, encoded.folder, anew=anew)
    rows = _rows(encoded, kind, words, length, split, seed)
    count = times * len(rows)
    names = [f"{NAME}-{n}-of-{parts}" if parts > 1 else NAME for n in range(parts)]
    names = [f"{name}.gz" for name in names] if packed else names
    with files.making(target, keep=True) as folder, Progress("records", count, "examples") as shown:
        for part, name in enumerate(names):
            with files.survive_disk(folder / name):
                import_choice: Any = gzip.open if packed else open
                with import_choice(folder / name, "wb") as file:
                    of_part = np.arange(part, count, parts)
                    for block in records.framed(_examples(rows, of_part)):
                        file.write(block)
                    shown.add(len(of_part))
                files.sync(folder / name)
        files.write_text(folder / "vocab.txt", encoded.tokenizer.listed())
    counted = ", ".join(rows.features(np.zeros(1, np.int64)))
    return [f"{target}: {many(count, 'example')} of {length} tokens, {many(parts, 'file')}: {counted}"]


def _rows(encoded: Encoded, kind: str, words: Sequence[str], length: int, split: str, seed: int) -> Any:
    store = encoded.train if split == "train" else encoded.validation
    if store is None:
        raise RecipeError("--split", f"found {split}, which {encoded.folder} does not have", "train")
    objective = load("objectives", kind, place="the objective")
    options = settings.decode(objective, settings.override({}, words), "records")
    phase = Phase(steps=1, length=length, batch=BATCH, learning_rate=1.0, pack=False)
    rows = options.rows([store], [1.0], encoded.tokenizer, phase, "records", seed)
    if not hasattr(rows, "features"):
        able = [name for name in entries("objectives") if _has_features(name)]
        raise RecipeError("the objective", f"found {kind}, which has no TFRecord format", " or ".join(able))
    return rows


def _has_features(name: str) -> bool:
    module = import_choice("objectives", name)
    return any(hasattr(value, "features") for value in vars(module).values() if isinstance(value, type))


def _examples(rows: Any, numbers: NDArray[np.int64]) -> Iterator[bytes]:
    for first in range(0, len(numbers), BATCH):
        yield from examples.written(rows.features(numbers[first : first + BATCH]))
