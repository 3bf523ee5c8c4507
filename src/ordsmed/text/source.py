"""The interface of a corpus. Its work can be divided over processes: pieces, a fast reader, and a slow step per
document.

    pieces() -> read(piece) -> raw documents, in order, quickly       (one process a piece)
                               refine(document) -> document | None    (any process: it looks at this document alone)

`documents()` does both steps for callers that only want the documents. A corpus that has only `documents()`, `stamp()`
and `size()` is read as one piece.
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
    """A file, or a part of a file that can be read by itself."""

    path: Path
    start: int = 0
    "byte offset at which the part begins"
    stop: int | None = None
    "byte offset at which the part ends (exclusive); None: the end of the file"
    bytes: int | None = None
    "bytes to read, if start and stop do not count bytes"


class Source(Protocol):
    """The methods that every corpus of the menu `corpora` has."""

    def documents(self) -> Iterator[Document]: ...

    def stamp(self) -> object:
        """Return what the documents depend on, as a value that JSON can hold. The corpus is rebuilt when it changes."""

    def size(self) -> int: ...


@dataclass(frozen=True)
class FileSource:
    """Base class of corpora that read files. A subclass defines `read`, and `refine` for slow work on a document."""

    LICENCE: ClassVar[str] = ""  # of the texts that this source usually holds, for the report
    WORDS: ClassVar[int] = 0  # published number of words, for the report

    path: str | list[str]
    "files, folders (all files in them) or patterns; .gz, .bz2, .xz and .zst are unpacked"

    def documents(self) -> Iterator[Document]:
        for piece in self.pieces():
            for raw in self.read(piece):
                if (document := self.refine(raw)) is not None:
                    yield document

    def pieces(self) -> list[Piece]:
        return [Piece(path) for path in read.files(self.path)]

    def read(self, piece: Piece) -> Iterator[Document]:
        """Yield the raw documents of a piece. This runs in one process, so it does as little work as possible."""
        raise NotImplementedError

    def refine(self, document: Document) -> Document | None:
        """Do the slow work on one document, such as extracting text from markup. Return None to leave it out."""
        return document

    def stamp(self) -> object:
        return read.stamp(read.files(self.path))

    def size(self) -> int:
        return read.size(read.files(self.path))


@dataclass(frozen=True)
class TextSource(FileSource):
    """Base class of corpora that read text files."""

    errors: read.Errors = "strict"
    "invalid UTF-8: stop with an error that names the byte (strict), or write U+FFFD for it and count it (replace)"
    encoding: str = "utf-8"
    "encoding of the files, such as windows-1252 or utf-16; auto: detected per file, and counted in the report"
    densest: int = read.DENSEST
    "largest ratio of unpacked to packed size, over 64 MB; a denser file is refused as a bomb; 0: no limit"

    def __post_init__(self) -> None:
        encodings.canonical_name(self.encoding)
        at_least(self, densest=0)

    def lines(self, path: Path, longest: int = read.LONGEST) -> Iterator[str]:
        """Yield the lines of a file, unpacked and decoded according to the settings."""
        known = encodings.canonical_name(self.encoding)
        return read.lines(path, self.errors, longest=longest, encoding=known, densest=self.densest)
