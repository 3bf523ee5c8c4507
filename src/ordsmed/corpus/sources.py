"""Sources of a corpus: bundles of pieces that can be read by themselves, and documents that are what they should be."""

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
LARGE = 1_000_000  # bytes of a file of which a portion is read where not all is wanted

Bundle = tuple[Piece, ...]


@dataclass(frozen=True)
class CorpusSource:
    """Where documents come from, and what they are for."""

    settings: Source
    purpose: str = ""
    "'': to be split; validation, test: given for that; against: documents like these are dropped elsewhere"
    portion: float = 1.0
    "share of its bytes that is read: of large files the first of them, and as large a share of the small files"
    longest: int = 0
    "characters; a longer document becomes several, cut at line ends; 0: as they are"
    skips_broken: bool = False
    "a file that cannot be read is named, counted and left out from there on; else it is refused"

    def bundles(self) -> list[Bundle]:
        """What can be read by itself: pieces, small ones several together; [()] where the source is all of a piece."""
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
        """Those that are read; of small ones a share, drawn by their paths, and at least one."""
        pieces = cast(FileSource, self.settings).pieces()
        if self.portion >= 1:
            return pieces
        kept = [p for p in pieces if _size(p) >= LARGE or text_number(str(p.path)) < self.portion * 2**64]
        return kept or pieces[:1]

    def size(self, bundle: Bundle) -> int:
        return sum(map(_size, bundle)) if bundle else int(self.settings.size())

    def read(self, bundle: Bundle) -> Iterator[Document]:
        """Raw documents, in order."""
        with naming(f"{menu.kind_of(self.settings)}: documents"):
            streams = map(self._read_piece, bundle) if bundle else [self.settings.documents()]
            for document in chain.from_iterable(streams):
                yield from self._parts(_checked(document))

    def _parts(self, document: Document) -> Iterator[Document]:
        """A document that is not too long as it is, another in parts of whole lines."""
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
        """The documents of a piece, as far as it is to be read and can be."""
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
        """The slow half for one of them."""
        if not hasattr(self.settings, "refine"):
            return document
        with naming(f"{menu.kind_of(self.settings)}: {document.id}"):
            refined = self.settings.refine(document)
            return None if refined is None else _checked(refined)


def is_refined(settings: Source) -> bool:
    """Is what it reads no text yet, but markup?"""
    return getattr(type(settings), "refine", FileSource.refine) is not FileSource.refine


@contextlib.contextmanager
def naming(place: str) -> Iterator[None]:
    """What code of users raises, as one line that names the place; our own errors name theirs."""
    try:
        yield
    except (OrdsmedError, OSError, MemoryError):
        raise
    except Exception as error:
        raise DataError(place, f"{type(error).__name__}: {error}", "", "mend the source or step") from error


def _checked(document: object) -> Document:
    """What code of users gives as a document."""
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
