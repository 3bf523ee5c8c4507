"""The documents that an index is made of: those of a corpus, or of text and JSON lines files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import menu, run, stages
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.run import Run
from ordsmed.corpus.folder import SPLITS, documents, parts
from ordsmed.corpus.pipeline import Corpus
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.use.index.passages import title_of

PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)\Z", re.IGNORECASE)
READERS = {"": "text", ".txt": "text", ".text": "text", ".md": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class IndexedTexts:
    """Documents in an order that is the same at every reading."""

    name: str
    corpus: Path | None  # the folder of a finished corpus
    files: tuple[tuple[str, tuple[str, ...]], ...] = ()  # without a corpus: pairs of a reader's name and its files

    @staticmethod
    def of(name: str) -> IndexedTexts:
        name = stages.stage(name, stages.CORPUS)
        kind = kind_of_folder(name)
        if kind is FolderKind.CORPUS or kind is FolderKind.ABSENT:
            return IndexedTexts(name, run.obtain(Corpus, name))
        if kind.made or kind.model:
            raise RecipeError(name, f"is the folder of {kind.value}", "a corpus, or files of text or JSON lines")
        groups: dict[str, list[str]] = {}
        for path in read.files(name):
            reader = READERS.get(Path(PACKED.sub("", path.name)).suffix.lower())
            if reader is None:
                remedy = "make a corpus of it first: `ordsmed help corpus`"
                raise DataError(path, "is neither text nor JSON lines", "a corpus, .txt or .jsonl", remedy)
            groups.setdefault(reader, []).append(str(path))
        return IndexedTexts(name, None, tuple((reader, tuple(paths)) for reader, paths in sorted(groups.items())))

    def stamp(self) -> object:
        if self.corpus:
            return Run(self.corpus).status["fingerprint"]
        return [[reader, read.stamp([Path(path) for path in paths])] for reader, paths in self.files]

    @property
    def count(self) -> int | None:
        """Return the number of documents, or None if it is unknown until they are read."""
        if self.corpus is None:
            return None
        status = Run(self.corpus).status
        return sum(status.get(split, {}).get("documents", 0) for split in SPLITS)

    def documents(self, first: int = 0) -> Iterator[Document]:
        """Yield the documents from number `first` on. Whole parts of a corpus before it are not read."""
        left = first
        for portion, count in self._portions():
            if count is not None and count <= left:
                left -= count
                continue
            for document in portion:
                if left:
                    left -= 1
                else:
                    yield document

    def _portions(self) -> Iterator[tuple[Iterator[Document], int | None]]:
        """Yield iterators of documents, each with its number of documents if that is known."""
        if self.corpus is None:
            for reader, paths in self.files:
                yield menu.load("corpora", reader)(path=_one_or_all(paths)).documents(), None
            return
        status = Run(self.corpus).status
        for split in SPLITS:
            counts = status.get(split, {}).get("parts", {})
            for part in parts(self.corpus, split):
                yield documents(part), counts.get(part.name)


def _one_or_all(paths: Sequence[str]) -> str | tuple[str, ...]:
    return paths[0] if len(paths) == 1 else tuple(paths)


def name_of(document: Document) -> str:
    """Return the id that the document has in its source."""
    return str(
        next((document.meta[key] for key in ("_id", "id") if document.meta.get(key) not in (None, "")), document.id)
    )


def record_of(document: Document) -> dict[str, Any]:
    """Return the fields of a document that an index keeps: id, title, url, and all others under `meta`."""
    meta = {key: value for key, value in document.meta.items() if key not in ("_id", "id", "title")}
    url = meta.pop("url") if isinstance(meta.get("url"), str) else ""
    about = {"id": name_of(document), "title": title_of(document), "url": url, "meta": meta}
    return {key: value for key, value in about.items() if value}
