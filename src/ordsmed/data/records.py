"""Records: pretraining examples of BERT's and ELECTRA's programs (TFRecords) -> a store and a table of masks.

    [CLS] the [MASK] sat [SEP] it purred [SEP]  ->  the cat sat | it purred     in the store: a document per example
                                                ->  train.given.bin             end of A, the label, the masks

Files of ids as in nanoGPT (.bin) become a store as well.

Objectives can build new rows from the text, or use the masks of the records (`data/record_rows.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.binary import examples
from ordsmed.base.binary import records as packed
from ordsmed.base.binary.records import RecordBlock
from ordsmed.base.errors import DataError
from ordsmed.base.say import Progress, many, say
from ordsmed.data.record_rows import GIVEN, NO_LABEL
from ordsmed.data.store import StoreWriter
from ordsmed.text.tokenizer import Tokenizer

Table = NDArray[np.int64]
SHARD, HEADER = (20240520).to_bytes(4, "little"), 1024  # magic number of a shard of llm.c, and size of its header
TOKENS = 1 << 24  # ids processed at a time
TEXT = {"input_ids": examples.INTS, "input_mask": examples.INTS, "segment_ids": examples.INTS}
MASKS = {
    "masked_lm_positions": examples.INTS,
    "masked_lm_ids": examples.INTS,
    "masked_lm_weights": examples.FLOATS,
    "next_sentence_labels": examples.INTS,
}


@dataclass(frozen=True)
class Examples:
    block: RecordBlock
    ids: Table  # [N, T], with the original ids at masked positions
    real: NDArray[np.bool_]
    second: NDArray[np.bool_]  # tokens of the second segment
    masked: Table  # [N, P], masked positions; 0: unused
    shown: Table  # [N, P], ids shown at masked positions
    labels: Table  # [N]


def store_tokens(paths: list[Path], prefix: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Write the store of a split from files of nanoGPT or llm.c: 16-bit ids, texts separated by the end token."""
    if tokenizer.end is None:
        raise DataError(
            paths[0], "has texts that end with a token, but the tokenizer has no such token", "GPT-2's pieces"
        )
    with StoreWriter(prefix, tokenizer.vocabulary) as store:
        for path in paths:
            size, skip = path.stat().st_size, 0
            with path.open("rb") as file:
                if file.read(4) == SHARD:
                    skip = HEADER
            if size % 2 or size < skip:
                raise DataError(path, f"{size:,} bytes", "16-bit numbers", "copy it again")
            ids = np.memmap(path, "<u2", "r", offset=skip) if size > skip else np.zeros(0, "<u2")
            for first in range(0, len(ids), TOKENS):  # a longer text is stored as several documents
                block = np.asarray(ids[first : first + TOKENS])
                if block.max(initial=0) >= tokenizer.vocabulary:
                    wrong = f"holds the id {int(block.max())}"
                    remedy = "name the tokenizer that they were made with"
                    raise DataError(path, wrong, f"ids below {tokenizer.vocabulary}", remedy)
                ends = np.flatnonzero(block == tokenizer.end)
                lengths = np.diff(np.concatenate([[-1], ends, [len(block)]])) - 1
                store.extend(block[block != tokenizer.end], lengths, np.ones(len(lengths), np.int64))
    if not store.document_count:
        raise DataError(paths[0], "holds no text", "16-bit ids")
    say(f"{prefix.name}: {many(store.document_count, 'document')}, {many(store.token_count, 'token')}")
    return store.facts()


def store_records(paths: list[Path], prefix: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """Write the store of a split and its table of masks, and return the facts."""
    width, length = 0, 0
    with (
        StoreWriter(prefix, tokenizer.vocabulary) as store,
        prefix.with_name(prefix.name + GIVEN).open("wb") as rows_file,
        Progress(prefix.name, sum(path.stat().st_size for path in paths) / 1e6, "MB") as shown,
    ):
        for path in paths:
            for batch in read(path):
                rows, size = _stored(batch, store, tokenizer)
                if width and (width, length) != (rows.shape[1], size):
                    wrong = f"rows of {size} tokens and {(rows.shape[1] - 2) // 2} predictions"
                    raise DataError(path, wrong, f"{length} and {(width - 2) // 2}, as in the files before")
                width, length = rows.shape[1], size
                with files.survive_disk(prefix):
                    rows_file.write(np.ascontiguousarray(rows, "<i4").data)
            shown.add(path.stat().st_size / 1e6)
    if not store.document_count:
        raise DataError(paths[0], "has no record", "pretraining examples")
    facts = {**store.facts(), "unknown": store.unknown_share(tokenizer.unknown), "given": [width, length]}
    masks = f", {(width - 2) // 2} predictions each" if width > 2 else ""
    counted = ", ".join(many(facts[f"{noun}s"], noun) for noun in ("document", "sequence", "token"))
    say(f"{prefix.name}: {many(store.document_count, 'example')} of {length} tokens{masks}: {counted}")
    return facts


def read(path: Path) -> Iterator[Examples]:
    wanted: dict[str, int] = {}
    for block in packed.read(path):
        wanted = wanted or _features(block)
        columns = examples.read(block, wanted)
        ids, real, second = (columns.table(name, block) for name in TEXT)
        if {real.shape[1], second.shape[1]} != {ids.shape[1]}:
            wrong = f"{ids.shape[1]} ids, {real.shape[1]} of a mask, {second.shape[1]} of segments"
            raise DataError(block.place(0), wrong, "as many of each")
        masked: Table = np.zeros((len(block), 0), np.int64)
        targets: NDArray[Any] = masked
        labels: Table = np.full(len(block), NO_LABEL)
        if MASKS.keys() <= wanted.keys():
            at, targets = columns.table("masked_lm_positions", block), columns.table("masked_lm_ids", block)
            masked = np.where(columns.table("masked_lm_weights", block, at.shape[1]) > 0, at, 0).astype(np.int64)
            labels = columns.table("next_sentence_labels", block, 1)[:, 0].astype(np.int64)
        _inside(block, masked, ids.shape[1], "masked_lm_positions")
        ids, shown = ids.astype(np.int64), np.take_along_axis(ids, masked, 1).astype(np.int64)
        row, slot = np.nonzero(masked)
        ids[row, masked[row, slot]] = targets[row, slot]
        yield Examples(block, ids, real > 0, (second > 0) & (real > 0), masked.astype(np.int64), shown, labels)


def _features(block: RecordBlock) -> dict[str, int]:
    present = examples.features(block.record(0))
    features = {**TEXT, **MASKS} if "masked_lm_positions" in present else TEXT
    if lacks := [name for name in features if name not in present]:
        names = ", ".join(sorted(present)) or "no feature"
        wanted = "BERT's (create_pretraining_data) or ELECTRA's (build_pretraining_dataset)"
        raise DataError(block.place(0), f"has {names}, but not {', '.join(lacks)}", wanted)
    return features


def _inside(block: RecordBlock, table: NDArray[Any], limit: int, name: str) -> None:
    for number in np.flatnonzero(((table < 0) | (table >= limit)).any(1))[:1]:
        worst = int(table[number].max()) if table[number].max() >= limit else int(table[number].min())
        raise DataError(block.place(int(number)), f"{name}: found {worst}", f"0 to {limit - 1}")


def _stored(batch: Examples, store: StoreWriter, tokenizer: Tokenizer) -> tuple[Table, int]:
    _inside(batch.block, batch.ids, tokenizer.vocabulary, "input_ids")
    rows, sizes, after = np.arange(len(batch.ids)), batch.real.sum(1), batch.second.sum(1)
    first = sizes - after  # [CLS] A [SEP]
    ends = np.where(after > 0, sizes, first) - 1
    framed = (batch.ids[:, 0] == tokenizer.start) & (batch.ids[rows, first - 1] == tokenizer.stop)
    framed &= (batch.ids[rows, ends] == tokenizer.stop) & (sizes > 2 + (after > 0))
    framed &= (batch.real == (np.arange(batch.ids.shape[1]) < sizes[:, None])).all(1)
    framed &= (batch.second == (batch.real & (np.arange(batch.ids.shape[1]) >= first[:, None]))).all(1)
    for number in np.flatnonzero(~framed)[:1]:
        wrong = f"its ids {' '.join(map(str, batch.ids[number, :4]))} ... do not have this tokenizer's special tokens"
        wanted = f"{tokenizer.start} A {tokenizer.stop} B {tokenizer.stop}"
        raise DataError(batch.block.place(int(number)), wrong, wanted, "name the tokenizer that they were made with")
    inner = batch.real.copy()
    inner[:, 0] = inner[rows, first - 1] = inner[rows, ends] = False
    lengths = np.stack([first - 2, np.maximum(after - 1, 0)], 1)
    store.extend(batch.ids[inner], lengths.ravel(), np.full(len(rows), 2))
    return np.concatenate([(first - 2)[:, None], batch.labels[:, None], batch.masked, batch.shown], 1), batch.ids.shape[
        1
    ]
