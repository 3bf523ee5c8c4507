"""Documents to be scored: a text file is one, of JSON lines every line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ordsmed.base.errors import DataError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.likelihood.probe import paths_of, records, text_of, valid
from ordsmed.text import read


def documents(files: Sequence[str], key: str) -> Iterator[tuple[str, str]]:
    """Each with its place."""
    for name in files:
        if kind_of_folder(Path(name)) is FolderKind.STORE:
            raise DataError(name, "is the folder of an `encode`", "texts", "`--probe perplexity` takes it, alone")
    for path in paths_of(files):
        if is_json(path):
            for place, row in records(path):
                yield place, text_of(row, key, place)
        else:
            text = "".join(read.texts(path))
            if not text.strip():
                raise DataError(path, "is empty", "a text")
            valid(text, str(path))
            yield str(path), text


def is_json(path: Path) -> bool:
    """By its name."""
    return bool({".json", ".jsonl", ".ndjson"} & set(path.suffixes))
