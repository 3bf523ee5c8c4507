"""What a corpus of files offers, so that its work can be shared out: pieces, a quick reading, and a slow half.

    pieces() -> read(piece) -> raw documents, in order, quickly       (one process a piece)
                               refine(document) -> document | None    (any process: it looks at this document alone)

`documents()` is both halves in one, for whoever wants the documents and nothing else. A corpus that has only
`documents()`, `stamp()` and `size()` is read as one piece.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from ordsmed.base.checks import at_least
from ordsmed.text import encodings, read
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


class Source(Protocol):
    """What every corpus of the menu has."""

    def documents(self) -> Iterator[Document]:
        """All documents, in order."""

    def stamp(self) -> object:
        """What the documents depend on, as JSON can hold it."""

    def size(self) -> int:
        """Bytes to read."""


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

    def stamp(self) -> object:
        """Paths, sizes and times of the files."""
        return read.stamp(read.files(self.path))

    def size(self) -> int:
        return read.size(read.files(self.path))


@dataclass(frozen=True)
class TextSource(FileSource):
    """What corpora of text files share."""

    errors: read.Errors = "strict"
    "invalid UTF-8: refuse it with its place (strict), or put U+FFFD in its place and count (replace)"
    encoding: str = "utf-8"
    "of the files, such as windows-1252 or utf-16; auto: by their marks, else a careful guess, both counted"
    densest: int = read.DENSEST
    "times its size, over 64 MB, that a packed file may unpack to; what is denser is refused as a bomb; 0: any"

    def __post_init__(self) -> None:
        encodings.known(self.encoding)
        at_least(self, densest=0)

    def lines(self, path: Path, longest: int = read.LONGEST) -> Iterator[str]:
        """The lines of a file, unpacked and decoded as the settings say."""
        known = encodings.known(self.encoding)
        return read.lines(path, self.errors, longest=longest, encoding=known, densest=self.densest)
