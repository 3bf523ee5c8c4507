"""StoredPassages: passages as their files have them, read one by one; nothing of them stays in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.use.index.passages import read_as

REMEDY = "make the index again"


@dataclass(frozen=True)
class IndexedPassage:
    """A part of a document."""

    document: int
    id: str  # of the document, as its source calls it
    title: str
    url: str
    text: str
    start: int  # characters of the document
    end: int


class StoredPassages:
    """Those of a folder, by number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = files.mapped(folder / "passages.npy", "where passages stand", REMEDY)
        self.starts = files.mapped(folder / "documents.npy", "where documents stand", REMEDY)
        self.texts, self.records = _bytes_of(folder / "texts.bin"), _bytes_of(folder / "documents.jsonl")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> IndexedPassage:
        document, begin, end, start, stop = map(int, self.rows[number])
        return IndexedPassage(document, *self.about(document), self._text(begin, end), start, stop)

    def about(self, document: int) -> tuple[str, str, str]:
        """A document's id, title and address."""
        end = int(self.starts[document + 1]) if document + 1 < len(self.starts) else len(self.records)
        try:
            record = json.loads(self.records[int(self.starts[document]) : end].tobytes())
        except ValueError:
            raise DataError(self.folder / "documents.jsonl", f"record {document:,} is damaged", "", REMEDY) from None
        return record.get("id", ""), record.get("title", ""), record.get("url", "")

    def read_as(self, title: bool, first: int = 0) -> Iterator[str]:
        """From this number on, as they are read: below their title."""
        known, above = -1, ""
        for number in range(first, len(self)):
            document, begin, end = map(int, self.rows[number, :3])
            if title and document != known:
                known, above = document, self.about(document)[1]
            yield read_as(above, self._text(begin, end))

    def _text(self, begin: int, end: int) -> str:
        if not 0 <= begin <= end <= len(self.texts):
            raise DataError(self.folder / "texts.bin", f"{len(self.texts):,} bytes", f"{end:,} or more", REMEDY)
        return self.texts[begin:end].tobytes().decode(errors="replace")


def _bytes_of(path: Path) -> np.ndarray:
    try:
        return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}", "a file of an index", REMEDY) from None
