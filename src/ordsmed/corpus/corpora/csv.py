"""CSV and TSV files: one document per row, the text in a column given by its name or its number from 1.

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
    """Documents of CSV and TSV files. A file is read into memory."""

    text_key: str | int = "text"
    "name of the text column, or its number from 1"
    header: bool = True
    "whether the first line contains column names"
    errors: read.Errors = "strict"
    "invalid UTF-8: stop with an error that names the byte (strict), or write U+FFFD for it and count it (replace)"

    def read(self, piece: Piece) -> Iterator[Document]:
        rows = table(piece.path, {"text": self.text_key}, header=self.header, errors=self.errors, more=True)
        for number, text in enumerate(rows.columns["text"]):
            if text.strip():
                yield Document(text, id=rows.place(number))
