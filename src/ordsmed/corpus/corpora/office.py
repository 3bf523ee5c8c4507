"""Word (.docx), OpenDocument (.odt) and PDF files, one document per file.

    letter.docx, notes.odt -> paragraphs of their XML (markup/office.py)                          -> Document
    report.pdf             -> lines of its pages, joined to paragraphs (markup/pdf.py, by pypdf)  -> Document

Other files of a folder are left out and counted. A file that cannot be read raises an error; with `broken = "skip"` in
the recipe it is reported, counted and left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.markup import office, pdf
from ordsmed.text.source import FileSource, Piece


@dataclass(frozen=True)
class Office(FileSource, Choice):
    """Documents of word processors, and PDF files."""

    def read(self, piece: Piece) -> Iterator[Document]:
        tally, suffix = read.tally(), piece.path.suffix.lower()
        tally.bytes += piece.path.stat().st_size
        if suffix not in read.OFFICE:
            tally.left_out["files of other kinds"] += 1
            return
        meta, paragraphs = (pdf.text_of if suffix == ".pdf" else office.paragraphs)(piece.path)
        if paragraphs:
            yield Document("\n".join(paragraphs), id=str(piece.path), meta=meta)
        else:
            tally.left_out["documents without text"] += 1
