"""What a corpus of files offers, so that its work can be shared out: pieces, a quick reading, and a slow half.

    pieces() -> read(piece) -> raw documents, in order, quickly       (one process a piece)
                               refine(document) -> document | None    (any process: it looks at this document alone)

`documents()` is both halves in one, for whoever wants the documents and nothing else. A corpus that has only
`documents()`, `stamp()` and `size()` is read as one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ordsmed.text import read
from ordsmed.text.document import Document


@dataclass(frozen=True)
class Piece:
    """A file, or a part of one that can be read by itself."""

    path: Path
    start: int = 0
    "byte at which the part begins"
    stop: int | None = None
    "byte behind its last; None: the end of the file"
    bytes: int | None = None
    "how much there is to read, where start and stop count something else"


@dataclass(frozen=True)
class FileSource:
    """What corpora of files share; a file of the menu adds `read`, and `refine` where there is slow work."""

    LICENCE: ClassVar[str] = ""  # of what this source usually holds, for the report
    WORDS: ClassVar[int] = 0  # published size, for the report

    path: str | list[str]
    "files, folders (all files in them) or patterns; .gz, .bz2, .xz and .zst are unpacked"

    def documents(self) -> Iterator[Document]:
        """The documents of all files, in sorted order."""
        for piece in self.pieces():
            for raw in self.read(piece):
                if (document := self.refine(raw)) is not None:
                    yield document

    def pieces(self) -> list[Piece]:
        """The files, in sorted order."""
        return [Piece(path) for path in read.files(self.path)]

    def read(self, piece: Piece) -> Iterator[Document]:
        """The documents of a piece, as quickly as they can be told apart."""
        raise NotImplementedError

    def refine(self, document: Document) -> Document | None:
        """The slow work on one document: markup to text. None: it is left out (counted in the tally)."""
        return document

    def stamp(self) -> Any:
        """Paths, sizes and times of the files."""
        return read.stamp(read.files(self.path))

    def size(self) -> int:
        """Bytes to read."""
        return read.size(read.files(self.path))
