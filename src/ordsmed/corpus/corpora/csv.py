"""CSV and TSV files: a document a row, its text in a column, by its name or its number from 1.

id,text\\n1,"One. Two."\\n  ->  Document("One. Two.", id="a.csv:2")
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.labelled.tables import table
from ordsmed.text.source import FileSource, Piece


@dataclass(frozen=True)
class Csv(FileSource, Choice):
    """Documents of tables in text files; a file is held in memory."""

    text_key: str | int = "text"
    "the column in which the text stands: its name, or its number from 1"
    header: bool = True
    "does the first line name the columns?"
    errors: read.Errors = "strict"
    "invalid UTF-8: refuse it with its place (strict), or put U+FFFD in its place and count (replace)"

    def read(self, piece: Piece) -> Iterator[Document]:
        """The documents of a file; rows without text are none."""
        rows = table(piece.path, {"text": self.text_key}, header=self.header, errors=self.errors, more=True)
        for number, text in enumerate(rows.columns["text"]):
            if text.strip():
                yield Document(text, id=rows.place(number))
