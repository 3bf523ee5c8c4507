"""Finished corpora of `ordsmed corpus` as sources, to be joined, filtered or split again.

work/corpus/books/train/00000.jsonl ...  ->  their documents; with `sentences = "given"` also their sentences
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import run
from ordsmed.base.menu import Choice
from ordsmed.corpus import folder
from ordsmed.corpus.pipeline import Corpus
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece


@dataclass(frozen=True)
class MadeCorpus(Choice):
    """Finished corpora."""

    name: str | list[str]
    "folders or recipes of `ordsmed corpus`; missing corpora are built"
    splits: tuple[str, ...] = folder.SPLITS
    "which splits are read"

    def __post_init__(self) -> None:
        if not set(self.splits) <= set(folder.SPLITS):
            raise ValueError(f"splits: found {list(self.splits)}; wanted some of {', '.join(folder.SPLITS)}")

    def documents(self) -> Iterator[Document]:
        for piece in self.pieces():
            yield from self.read(piece)

    def pieces(self) -> list[Piece]:
        return [
            Piece(path) for corpus in self._folders() for split in self.splits for path in folder.parts(corpus, split)
        ]

    def read(self, piece: Piece) -> Iterator[Document]:
        yield from folder.documents(piece.path)
        read.tally().bytes += piece.path.stat().st_size

    def stamp(self) -> object:
        return [run.Run(corpus).status["fingerprint"] for corpus in self._folders()]

    def size(self) -> int:
        return read.size([piece.path for piece in self.pieces()])

    def _folders(self) -> list[Path]:
        return [run.obtain(Corpus, name) for name in ([self.name] if isinstance(self.name, str) else self.name)]
