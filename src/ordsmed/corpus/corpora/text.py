"""Text files, plain or packed, with a blank line between documents.

one paragraph or line\\n another\\n\\n the next document ...  ->  Document("one ...\\nanother", id="texts/a.txt:1"), ...
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece, TextSource

LONGEST = 8 << 20  # characters of a document; a longer one is cut at a line end


@dataclass(frozen=True)
class TextFiles(TextSource, Choice):
    """Documents of text files."""

    apart: Literal["blank", "line", "file"] = "blank"
    "what separates documents: blank lines, every line end, or the end of the file"

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("apart",)

    def read(self, piece: Piece) -> Iterator[Document]:
        if self.apart == "line":
            lines = enumerate(self.lines(piece.path), 1)
            return (Document(line, id=f"{piece.path}:{n}") for n, line in lines if line and not line.isspace())
        return _documents(piece.path, self.lines(piece.path), self.apart == "blank")


def _documents(path: Path, lines: Iterator[str], by_blanks: bool = True) -> Iterator[Document]:
    number, length = 1, 0
    lines_of_document: list[str] = []
    for line in lines:
        blank = not line or line.isspace()
        if lines_of_document and ((blank and by_blanks) or length + len(line) > LONGEST):
            read.tally().cut += not blank
            yield Document("\n".join(lines_of_document), id=f"{path}:{number}")
            number, length, lines_of_document = number + 1, 0, []
        if not blank:
            lines_of_document.append(line)
            length += len(line) + 1
    if lines_of_document:
        yield Document("\n".join(lines_of_document), id=f"{path}:{number}")
