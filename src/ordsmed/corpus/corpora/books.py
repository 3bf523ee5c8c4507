"""Books: a folder of .txt and .epub files, one book per file, as documents with one paragraph per line.

    .txt, .txt.gz -> without Gutenberg's license (markup/gutenberg.py) -> lines joined (markup/wrapped.py) -> Document
    .epub         -> chapters of paragraphs, title, author, language (markup/epub.py)                      -> Document

Other files of a folder are left out and counted.
"""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import say
from ordsmed.text import encodings, read
from ordsmed.text.document import Document
from ordsmed.text.markup import epub, gutenberg, line_wrapping, zip_archive
from ordsmed.text.source import FileSource, Piece

LONGEST = 8 << 20  # characters of a document; a longer one is cut at the end of a paragraph
LARGEST = zip_archive.LARGEST  # most unpacked bytes of a book's text
_TXT = re.compile(r"\.(?:txt|text)(?:\.utf-?8)?(?:\.(?:gz|bz2|xz|zst))?\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Books(FileSource, Choice):
    """Books, one per file."""

    LICENCE = "as each book says"
    WORDS = 800_000_000  # of BookCorpus, as published

    cut: Literal["book", "chapter"] = "book"
    "what a document is: a book, or a chapter if the epub has chapters"
    headings: bool = True
    "keep the headings of an epub, as paragraphs"
    unwrap: Literal["auto", "always", "never"] = "auto"
    "join the lines of .txt files: if they are hard-wrapped, always (except at blank lines), or never"
    fallback: str | None = None
    "encoding of .txt files that are not UTF-8, such as windows-1252; default: see `errors`"
    broken: Literal["refuse", "skip"] = "refuse"
    "a book that cannot be read: stop with an error, or report, count and skip it; encrypted ones are always skipped"
    errors: read.Errors = "strict"
    "invalid UTF-8: the book is broken (strict), or write U+FFFD for it and count it (replace)"

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.fallback or "utf-8")
        except LookupError:
            raise ValueError(f"fallback: found {self.fallback!r}; wanted an encoding such as windows-1252") from None

    def read(self, piece: Piece) -> Iterator[Document]:
        left_out = read.tally().left_out
        try:
            meta, chapters = self._book(piece.path)
        except zip_archive.Encrypted:
            left_out["encrypted books"] += 1
            return
        except DataError as error:
            if self.broken == "refuse":
                raise
            say(f"left out: {error}")
            left_out["broken books"] += 1
            return
        if chapters is None:
            left_out["files that are no books"] += 1
            return
        if self.cut == "book":
            chapters = [[p for chapter in chapters for p in chapter]]
        texts = [text for chapter in chapters for text in _bounded(chapter)]
        if not texts:
            left_out["empty books"] += 1
        for number, text in enumerate(texts, 1):
            yield Document(text, id=f"{piece.path}:{number}" if len(texts) > 1 else str(piece.path), meta=dict(meta))

    def _book(self, path: Path) -> tuple[dict[str, str], list[list[str]] | None]:
        """Return a book's metadata and the paragraphs of its chapters; None if the file is not a book."""
        if path.suffix.lower() == ".epub":
            read.tally().bytes += path.stat().st_size
            book = epub.book(path, self.errors, headings=self.headings)
            return book.meta, _chapters_without_frame(book.chapters)
        if not _TXT.search(path.name):
            read.tally().bytes += path.stat().st_size
            return {}, None
        text, encoding = read.decoded(data := _whole(path), self._encodings(data), self.errors, path)
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        start, stop = gutenberg.frame(lines)
        meta = {} if encoding == "utf-8" else {"encoding": encoding}
        lines = lines[start:stop]
        if self.unwrap != "never":
            lines = line_wrapping.joined(lines, always=self.unwrap == "always")
        return meta, [[line.strip() for line in lines if line.strip()]]

    def _encodings(self, data: bytes) -> list[str]:
        begins = data[: encodings.SAMPLE]
        if (mark := encodings.marked(begins) or encodings.escaped(begins)) not in (None, "utf-8"):
            return [mark]
        return ["utf-8", *([self.fallback] if self.fallback else [])]


def _whole(path: Path) -> bytes:
    blocks, size = [], 0
    for block in read.blocks(path):
        size += len(block)
        if size > LARGEST:
            raise DataError(path, f"more than {LARGEST:,} bytes of text", "a book", 'read it as kind = "text"')
        blocks.append(block)
    return b"".join(blocks)


def _bounded(paragraphs: list[str]) -> Iterator[str]:
    pieces, length = list[str](), 0
    for piece in (piece for paragraph in paragraphs for piece in _cut(paragraph)):
        if pieces and length + len(piece) > LONGEST:
            read.tally().cut += 1
            yield "\n".join(pieces)
            pieces, length = [], 0
        pieces.append(piece)
        length += len(piece) + 1
    if pieces:
        yield "\n".join(pieces)


def _cut(paragraph: str) -> Iterator[str]:
    while len(paragraph) > LONGEST:
        at = paragraph.rfind(" ", LONGEST // 2, LONGEST) + 1 or LONGEST
        yield paragraph[:at]
        paragraph = paragraph[at:]
    yield paragraph


def _chapters_without_frame(chapters: list[list[str]]) -> list[list[str]]:
    numbered = [(n, paragraph) for n, chapter in enumerate(chapters) for paragraph in chapter]
    start, stop = gutenberg.frame([paragraph for _, paragraph in numbered])
    return [[text for _, text in chapter] for _, chapter in groupby(numbered[start:stop], key=lambda pair: pair[0])]
