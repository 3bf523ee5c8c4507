"""A corpus folder: write and read part files with one document per line. A part is renamed when it is complete.

train/00000.jsonl, train/00001.jsonl, ...   validation/00000.jsonl, ...   test/00000.jsonl, ...
status.json   number of documents of each part, and its checksum, which is verified before reading
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.files import checksum, survive_disk, sync
from ordsmed.base.run import Run
from ordsmed.text.document import Document

SPLITS = ("train", "validation", "test")


@dataclass
class Count:
    """Counts of what was written to a split."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    characters: int = 0
    bytes: int = 0
    "bytes of the texts in UTF-8"


class PartWriter:
    """Writes the part files of a split, starting with number `first`.

    `again`: complete parts of a killed run are kept.
    """

    def __init__(self, folder: Path, shard: int, *, again: bool = False, first: int = 0) -> None:
        self.folder, self.shard, self.again, self.first = folder, shard, again, first
        self.count, self.parts, self.checksums = Count(), dict[str, int](), dict[str, str]()
        self.file: IO[bytes] | None = None
        self.documents = self.bytes = self.sum = 0  # of the current part
        self.stands = False  # whether the current part exists already

    def __enter__(self) -> PartWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if kind is None:
            self.close()
        elif self.file:  # an incomplete file keeps the suffix .part; the next run overwrites it
            with contextlib.suppress(OSError):
                self.file.close()

    def wants(self, size: int) -> bool:
        """Return whether the next document, of `size` bytes, must be written. Otherwise its part exists: call only
        `add`.
        """
        if self.documents and self.bytes + size > self.shard:
            self.close()
        if not self.documents:
            self.stands = self.again and (self.folder / self._name).exists()
        return not self.stands

    def write(self, line: bytes, sentences: int, words: int, characters: int, text: int = 0) -> None:
        """Write a document as one line, including its line end. `text` is the number of bytes of its text."""
        if self.wants(len(line)):
            with survive_disk(self.folder):
                if not self.file:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    self.file = self._beside.open("wb", buffering=1 << 20)
                self.file.write(line)
            self.sum = zlib.crc32(line, self.sum)
        self.add(len(line), sentences, words, characters, text)

    def add(self, size: int, sentences: int, words: int, characters: int, text: int) -> None:
        self.documents, self.bytes = self.documents + 1, self.bytes + size
        count = self.count
        count.documents += 1
        count.sentences += sentences
        count.words += words
        count.characters += characters
        count.bytes += text

    def take(self, part: PartWriter) -> None:
        for name, value in vars(part.count).items():
            setattr(self.count, name, getattr(self.count, name) + value)
        self.parts |= part.parts
        self.checksums |= part.checksums

    def close(self) -> None:
        if not self.documents:
            return
        part, digest = self.folder / self._name, f"{self.sum:08x}"
        if self.file:
            with survive_disk(self.folder):
                self.file.close()
                sync(self._beside)
                self._beside.rename(part)
        elif part.stat().st_size != self.bytes:
            raise DataError(
                part, f"{part.stat().st_size:,} bytes", f"{self.bytes:,}", "remove this file, and run the command again"
            )
        else:
            digest = checksum(part)
        self.parts[part.name], self.checksums[part.name] = self.documents, digest
        self.file, self.documents, self.bytes, self.sum = None, 0, 0, 0

    @property
    def _name(self) -> str:
        return f"{self.first + len(self.parts):05d}.jsonl"

    @property
    def _beside(self) -> Path:
        return self.folder / f"{self._name}.part"


def parts(folder: Path, split: str) -> list[Path]:
    """Return the part files of a split, in order. Raise DataError if one that status.json lists is missing."""
    paths = sorted((folder / split).glob("[0-9]*.jsonl"), key=lambda path: (len(path.name), path.name))
    facts = Run(folder).status.get(split) or {}
    if missing := sorted({*facts.get("parts", ())} - {path.name for path in paths}):
        raise DataError(folder / split / missing[0], "no such file", "a part of a corpus", "make the corpus again")
    return paths


def check(path: Path) -> None:
    facts = Run(path.parent.parent).status.get(path.parent.name) or {}
    if wanted := facts.get("checksums", {}).get(path.name):
        files.check(path, wanted, "copy it again, or make the corpus again")


def documents(path: Path) -> Iterator[Document]:
    import msgspec

    decode = msgspec.json.Decoder(Document).decode
    try:
        check(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    problem = str(error) if line.endswith(b"\n") else "the last line is cut off"
                    remedy = "make the corpus again"
                    raise DataError(f"{path}:{number}", problem, "one document per line", remedy) from None
    except FileNotFoundError:
        raise DataError(path, "no such file", "a part of a corpus", "make the corpus again") from None


def origin(folder: Path, split: str, number: int) -> str:
    """Return file, line and id of a document by its number in a split: `train/00000.jsonl:12, id books/a.txt:3`."""
    for path in parts(folder, split):
        with path.open("rb") as file:
            for line, _ in enumerate(file, 1):
                if number == 0:
                    document = next(d for n, d in enumerate(documents(path), 1) if n == line)
                    return f"{path}:{line}" + (f", id {document.id}" if document.id else "")
                number -= 1
    raise DataError(folder, f"has no {split} document of that number")
