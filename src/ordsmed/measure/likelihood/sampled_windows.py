"""Windows of running text sampled from a store, or from JSON lines that are first encoded into one.

A window is determined by its number and the seed. Documents follow each other with a separator between them, and a
window attends to all of its text, as in Megatron's training.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.say import many, say
from ordsmed.data.encode import Encoded
from ordsmed.data.rows import StreamRows
from ordsmed.data.store import Store, StoreWriter
from ordsmed.measure.likelihood.documents import documents, text_parts
from ordsmed.measure.likelihood.items import Ints, Item, Scorer

ROWS = 64  # rows that are read at once


def is_store(files: Sequence[str]) -> bool:
    """Return whether every name is a folder written by `encode`, or a split in one."""
    return all(_folder(name) is not None for name in files)


def parts(files: Sequence[str]) -> list[Path]:
    return [path for name in files for path in sorted((_folder(name) or Path()).glob(f"{_split(name)}.*"))]


def items(scorer: Scorer, files: Sequence[str], key: str, window: int, count: int | None, seed: int) -> Iterator[Item]:
    """Yield `count` windows, or every window once if `count` is None."""
    stores = [_encoded(name, scorer) for name in files] if is_store(files) else [_written(scorer, tuple(files), key)]
    end = scorer.tokenizer.separator
    if end is None:
        raise DataError("tokenizer", "has no end token", "<|endoftext|>, </s> or [SEP] between documents")
    rows = StreamRows(
        stores, [float(store.document_starts[-1]) for store in stores], window, end, "perplexity", seed, pack=True
    )
    count = len(rows) if count is None else count
    if count > len(rows):
        _say_repeated(tuple(files), len(rows), count)
    for at in range(0, count, ROWS):
        block = rows.assembled(np.arange(at, min(at + ROWS, count)))
        for tokens, is_text in zip(block.tokens, block.inner, strict=True):
            used = int(is_text[1:].sum()) + 1
            if used > 1:
                yield Item(tokens[:used], first=1, sign=False)


def document_ids(scorer: Scorer, files: Sequence[str]) -> Iterator[Ints]:
    for store in [_encoded(name, scorer) for name in files]:
        for number in range(store.document_count):
            yield store.document(number).astype(np.int64)


@functools.cache
def _say_repeated(files: tuple[str, ...], available: int, count: int) -> None:
    say(f"{', '.join(files)}: {many(available, 'window')} for the {count:,} to sample: some are scored repeatedly")


def _split(name: str) -> str:
    return "train" if Path(name).name == "train" else "validation"


def _folder(name: str) -> Path | None:
    path = Path(name)
    split = path.name if path.name in ("train", "validation") and not path.is_dir() else ""
    folder = path.parent if split else path
    return folder if kind_of_folder(folder) is FolderKind.STORE else None


def _encoded(name: str, scorer: Scorer) -> Store:
    folder = _folder(name)
    assert folder is not None
    encoded = Encoded(folder)
    if encoded.facts["tokenizer"] != scorer.tokenizer.fingerprint:
        wrong = f"was encoded with tokenizer {encoded.facts['tokenizer']}"
        raise DataError(name, wrong, f"{scorer.tokenizer.fingerprint}, the model's", "pass its text as JSON lines")
    store = encoded.train if _split(name) == "train" else encoded.validation
    if store is None:
        raise DataError(
            name, "has no held-out text", "a store with held-out text", f"{name}/train is the training text"
        )
    return store


class _TemporaryStore:
    """Folder for a temporary store, removed when the object is garbage-collected or the process ends."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ordsmed-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@functools.lru_cache(1)
def _temporary_store(fingerprint: str, files: tuple[str, ...], key: str) -> _TemporaryStore:
    return _TemporaryStore()


def _written(scorer: Scorer, files: tuple[str, ...], key: str) -> Store:
    prefix = _temporary_store(scorer.tokenizer.fingerprint, files, key).folder / "text"
    if not prefix.with_name("text.idx").exists():
        with StoreWriter(prefix, scorer.tokenizer.vocabulary) as writer:
            no_tokens = np.zeros(0, np.int64)
            for location, blocks in documents(files, key):
                last = no_tokens
                for part in text_parts(scorer, blocks, location):
                    pieces = scorer.cut([part])[0].pieces
                    if len(pieces) and len(last):  # a later part of the same document follows
                        writer.extend(last, np.asarray([len(last)]), no_tokens)
                    last = pieces if len(pieces) else last
                writer.add([last])
    return Store.open(prefix)
