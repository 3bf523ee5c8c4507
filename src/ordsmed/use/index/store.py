"""The passages and documents of an index, read from memory-mapped files one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.use.index.conditions import fitting
from ordsmed.use.index.passages import read_as

REMEDY = "make the index again"
MASKS = 64  # cached results of conditions


@dataclass(frozen=True)
class IndexedPassage:
    document: int  # its number
    id: str  # the document's id in its source
    title: str
    url: str
    text: str
    start: int  # in characters of the document
    end: int
    meta: dict[str, Any] = field(default_factory=dict, hash=False)  # all other fields of the document's record


class StoredPassages:
    """The passages of an index folder, by number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = files.mapped(folder / "passages.npy", "the positions of passages", REMEDY)
        self.starts = files.mapped(folder / "documents.npy", "the positions of documents", REMEDY)
        self.masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}
        self.texts, self.records = _bytes_of(folder / "texts.bin"), _bytes_of(folder / "documents.jsonl")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> IndexedPassage:
        document, begin, end, start, stop = map(int, self.rows[number])
        record = self.record(document)
        name, title, url = (str(record.get(key, "")) for key in ("id", "title", "url"))
        return IndexedPassage(document, name, title, url, self._text(begin, end), start, stop, record.get("meta", {}))

    def record(self, document: int) -> dict[str, Any]:
        """Return the record of a document: `id`, `title`, `url`, and all other fields under `meta`."""
        try:
            record = json.loads(self.record_bytes(document))
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(self.folder / "documents.jsonl", f"record {document:,} is damaged", "", REMEDY)
        return record

    def record_bytes(self, document: int) -> bytes:
        end = int(self.starts[document + 1]) if document + 1 < len(self.starts) else len(self.records)
        return self.records[int(self.starts[document]) : end].tobytes()

    def allowed(self, conditions: tuple[str, ...]) -> NDArray[np.bool_]:
        """Return which passages belong to documents that meet all conditions. MASKS results are cached."""
        mask = self.masks.get(conditions)
        if mask is None:
            records = (self.record(document) for document in range(len(self.starts)))
            fits = fitting(conditions, (record.pop("meta", {}) | record for record in records))
            if len(self.masks) >= MASKS:
                self.masks.clear()
            mask = self.masks[conditions] = fits[self.rows[:, 0]]
        return mask

    def check(self) -> None:
        """Raise an error if the texts or records are shorter than the passages and documents require."""
        wanted = int(self.rows[-1, 2]) if len(self.rows) else 0
        if len(self.texts) < wanted:
            raise DataError(self.folder / "texts.bin", f"{len(self.texts):,} bytes", f"{wanted:,} or more", REMEDY)
        if len(self.starts):
            self.record(len(self.starts) - 1)

    def read_as(self, title: bool, first: int = 0) -> Iterator[str]:
        """Yield the passages from number `first` on as a model reads them: after their title."""
        previous, heading = -1, ""
        for number in range(first, len(self)):
            document, begin, end = map(int, self.rows[number, :3])
            if title and document != previous:
                previous, heading = document, str(self.record(document).get("title", ""))
            yield read_as(heading, self._text(begin, end))

    def _text(self, begin: int, end: int) -> str:
        if not 0 <= begin <= end <= len(self.texts):
            raise DataError(self.folder / "texts.bin", f"{len(self.texts):,} bytes", f"{end:,} or more", REMEDY)
        return self.texts[begin:end].tobytes().decode(errors="replace")


def _bytes_of(path: Path) -> np.ndarray:
    try:
        return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}", "a readable file", REMEDY) from None
