"""Read sources as bundles of pieces that can be read independently, and check the documents."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import cast

from ordsmed.base import menu
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.keys import text_number
from ordsmed.base.say import say, with_article
from ordsmed.text.document import Document
from ordsmed.text.read import tally
from ordsmed.text.source import FileSource, Piece, Source

BUNDLE = 8_000_000  # bytes of small files that are read together
LARGE = 1_000_000  # of a file with more bytes only a portion is read, if `portion` is below 1

Bundle = tuple[Piece, ...]


@dataclass(frozen=True)
class CorpusSource:
    """A source of documents, and what they are used for."""

    settings: Source
    purpose: str = ""
    "'': split into train, validation and test; validation, test: only that; against: duplicates of these are dropped"
    portion: float = 1.0
    "share of the bytes that is read: the beginning of each large file, and the same share of the small files"
    longest: int = 0
    "characters; a longer document is cut into several at line ends; 0: no limit"
    skips_broken: bool = False
    "report and count a broken file and skip the rest of it; else raise an error"

    def bundles(self) -> list[Bundle]:
        """Return what can be read independently: pieces, small ones together; [()] if the source cannot be divided."""
        if not hasattr(self.settings, "pieces"):
            return [()]
        bundles, room = list[list[Piece]](), 0
        for piece in self._pieces():
            if not bundles or _size(piece) > room:
                bundles.append([])
                room = BUNDLE
            bundles[-1].append(piece)
            room -= _size(piece)
        return [tuple(bundle) for bundle in bundles]

    def _pieces(self) -> list[Piece]:
        """Return the pieces to read: the large ones and a share of the small ones, chosen by path; at least one."""
        pieces = cast(FileSource, self.settings).pieces()
        if self.portion >= 1:
            return pieces
        kept = [p for p in pieces if _size(p) >= LARGE or text_number(str(p.path)) < self.portion * 2**64]
        return kept or pieces[:1]

    def size(self, bundle: Bundle) -> int:
        return sum(map(_size, bundle)) if bundle else int(self.settings.size())

    def read(self, bundle: Bundle) -> Iterator[Document]:
        with naming(f"{menu.kind_of(self.settings)}: documents"):
            streams = map(self._read_piece, bundle) if bundle else [self.settings.documents()]
            for document in chain.from_iterable(streams):
                yield from self._parts(_checked(document))

    def _parts(self, document: Document) -> Iterator[Document]:
        if not self.longest or len(document.text) <= self.longest:
            yield document
            return
        parts, room = list[list[str]](), 0
        for line in document.text.split("\n"):
            if not parts or len(line) > room:
                parts.append([])
                room = self.longest
            parts[-1].append(line)
            room -= len(line) + 1
        for number, lines in enumerate(parts, 1):
            yield Document("\n".join(lines), id=f"{document.id}#{number}", meta=dict(document.meta))

    def _read_piece(self, piece: Piece) -> Iterator[Document]:
        """Yield the documents of a piece, up to the portion to read or the place where the file is broken."""
        counted = tally()
        last = self.portion * _size(piece) if self.portion < 1 and _size(piece) >= LARGE else math.inf
        begins = counted.bytes
        try:
            for document in cast(FileSource, self.settings).read(piece):
                yield document
                if counted.bytes - begins > last:
                    return
        except (DataError, OSError) as error:
            if not self.skips_broken:
                raise
            say(f"left out: {error}")
            counted.left_out["broken files, from where they break"] += 1

    def refine(self, document: Document) -> Document | None:
        """Do the source's slow work on a document. Return None if it is left out."""
        if not hasattr(self.settings, "refine"):
            return document
        with naming(f"{menu.kind_of(self.settings)}: {document.id}"):
            refined = self.settings.refine(document)
            return None if refined is None else _checked(refined)


def is_refined(settings: Source) -> bool:
    return getattr(type(settings), "refine", FileSource.refine) is not FileSource.refine


@contextlib.contextmanager
def naming(location: str) -> Iterator[None]:
    """Turn exceptions of user code into a DataError that names the place."""
    try:
        yield
    except (OrdsmedError, OSError, MemoryError):
        raise
    except Exception as error:
        raise DataError(location, f"{type(error).__name__}: {error}", "", "fix the source or step") from error


def _checked(document: object) -> Document:
    if not isinstance(document, Document):
        raise TypeError(
            f"gives {document!r:.60}, {with_article(type(document).__name__)}; wanted an ordsmed.text.document.Document"
        )
    for name, kind in (("text", str), ("id", str), ("meta", dict)):
        if not isinstance(value := getattr(document, name), kind):
            raise TypeError(f"gives a Document whose {name} is {value!r:.60}; wanted {with_article(kind.__name__)}")
    return document


def _size(piece: Piece) -> int:
    if piece.bytes is not None:
        return piece.bytes
    return (piece.stop if piece.stop is not None else piece.path.stat().st_size) - piece.start
