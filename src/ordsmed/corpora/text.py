"""Text files: plain or packed, a blank line between documents.

one paragraph or line\\n another\\n\\n the next document ...  ->  Document("one ...\\nanother", id="texts/a.txt:1"), ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.text import read
from ordsmed.text.document import Document

LONGEST = 8 << 20  # characters of one document; what is longer is cut at a line end


@dataclass(frozen=True)
class Settings:
    """Documents of text files, told apart by blank lines."""

    path: str | list[str]
    "files, folders (all files in them) or patterns; .gz, .bz2, .xz and .zst are unpacked"
    errors: read.Errors = "strict"
    "invalid UTF-8: refuse it with its place (strict), or put U+FFFD in its place and count (replace)"

    def documents(self) -> Iterator[Document]:
        """The documents of all files, in sorted order."""
        for path in read.files(self.path):
            yield from _documents(path, self.errors)

    def stamp(self) -> Any:
        """Paths, sizes and times of the files."""
        return read.stamp(read.files(self.path))

    def size(self) -> int:
        """Bytes to read."""
        return read.size(read.files(self.path))


def _documents(path: Path, errors: read.Errors) -> Iterator[Document]:
    number, length = 1, 0
    held: list[str] = []
    for line in read.lines(path, errors):
        blank = not line or line.isspace()
        if held and (blank or length + len(line) > LONGEST):
            read.tally().cut += not blank
            yield Document("\n".join(held), id=f"{path}:{number}")
            number, length, held = number + 1, 0, []
        if not blank:
            held.append(line)
            length += len(line) + 1
    if held:
        yield Document("\n".join(held), id=f"{path}:{number}")
