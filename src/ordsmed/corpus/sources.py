"""Sources of a corpus: bundles of pieces that can be read by themselves, and documents that are what they should be."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import cast

from ordsmed.base import menu
from ordsmed.base.errors import DataError, OrdsmedError
from ordsmed.base.say import with_article
from ordsmed.text.document import Document
from ordsmed.text.source import FileSource, Piece, Source

BUNDLE = 8_000_000  # bytes of small files that are read together

Bundle = tuple[Piece, ...]


@dataclass(frozen=True)
class CorpusSource:
    """Where documents come from, and what they are for."""

    settings: Source
    purpose: str = ""
    "'': to be split; validation, test: given for that; against: documents like these are dropped elsewhere"

    def bundles(self) -> list[Bundle]:
        """What can be read by itself: pieces, small ones several together; [()] where the source is all of a piece."""
        if not hasattr(self.settings, "pieces"):
            return [()]
        bundles, room = list[list[Piece]](), 0
        for piece in self.settings.pieces():
            if not bundles or _size(piece) > room:
                bundles.append([])
                room = BUNDLE
            bundles[-1].append(piece)
            room -= _size(piece)
        return [tuple(bundle) for bundle in bundles]

    def size(self, bundle: Bundle) -> int:
        """Bytes to read."""
        return sum(map(_size, bundle)) if bundle else int(self.settings.size())

    def read(self, bundle: Bundle) -> Iterator[Document]:
        """Raw documents, in order."""
        with naming(f"{menu.kind_of(self.settings)}: documents"):
            settings = cast(FileSource, self.settings)  # it has pieces where a bundle has
            streams = (settings.read(piece) for piece in bundle) if bundle else [settings.documents()]
            yield from (_checked(document) for document in chain.from_iterable(streams))

    def refine(self, document: Document) -> Document | None:
        """The slow half for one of them."""
        if not hasattr(self.settings, "refine"):
            return document
        with naming(f"{menu.kind_of(self.settings)}: {document.id}"):
            refined = self.settings.refine(document)
            return None if refined is None else _checked(refined)


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
