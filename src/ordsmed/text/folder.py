"""A corpus folder: part files of one document a line, written beside their place, renamed when whole, and read.

train/00000.jsonl, train/00001.jsonl, ...   validation/00000.jsonl, ...   test/00000.jsonl, ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ordsmed.base.errors import DataError
from ordsmed.base.files import survive_disk, sync
from ordsmed.text.document import Document

SPLITS = ("train", "validation", "test")


@dataclass
class Count:
    """What was written to one split."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    characters: int = 0
    bytes: int = 0


class Writer:
    """One split's part files."""

    def __init__(self, folder: Path, shard: int) -> None:
        self.folder, self.shard = folder, shard
        self.count, self.parts = Count(), dict[str, int]()
        self.file: IO[bytes] | None = None
        self.documents = self.bytes = 0  # of the part that is being written

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if kind is None:
            self.close()
        elif self.file:  # what is half written stays a .part; the next run removes it
            with contextlib.suppress(OSError):
                self.file.close()

    def write(self, line: bytes, sentences: int, words: int, characters: int) -> None:
        """One document, one line, with its end."""
        if self.file and self.bytes + len(line) > self.shard:
            self.close()
        with survive_disk(self.folder):
            if not self.file:
                self.folder.mkdir(parents=True, exist_ok=True)
                self.file = self._beside.open("wb", buffering=1 << 20)
            self.file.write(line)
        self.documents, self.bytes = self.documents + 1, self.bytes + len(line)
        count = self.count
        count.documents += 1
        count.sentences += sentences
        count.words += words
        count.characters += characters
        count.bytes += len(line)

    def close(self) -> None:
        """Make the part that is being written whole."""
        if not self.file:
            return
        with survive_disk(self.folder):
            self.file.close()
            sync(self._beside)
            self._beside.rename(self.folder / self._name)
        self.parts[self._name] = self.documents
        self.file, self.documents, self.bytes = None, 0, 0

    @property
    def _name(self) -> str:
        return f"{len(self.parts):05d}.jsonl"

    @property
    def _beside(self) -> Path:
        return self.folder / f"{self._name}.part"


def parts(folder: Path, split: str) -> list[Path]:
    """The part files of one split of a corpus folder, in order."""
    return sorted((folder / split).glob("[0-9]*.jsonl"), key=lambda path: (len(path.name), path.name))


def documents(path: Path) -> Iterator[Document]:
    """The documents of a part file."""
    import msgspec

    decode = msgspec.json.Decoder(Document).decode
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    found = str(error) if line.endswith(b"\n") else "the last line is cut off"
                    raise DataError(f"{path}:{number}", found, "one document a line", "make the corpus again") from None
    except FileNotFoundError:
        raise DataError(path, "no such file", "a part of a corpus", "make the corpus again") from None


def origin(folder: Path, split: str, number: int) -> str:
    """Where the document of this number in a split stands: `train/00000.jsonl:12, id books/a.txt:3`."""
    for path in parts(folder, split):
        with path.open("rb") as file:
            for line, _ in enumerate(file, 1):
                if number == 0:
                    found = next(d for n, d in enumerate(documents(path), 1) if n == line)
                    return f"{path}:{line}" + (f", id {found.id}" if found.id else "")
                number -= 1
    raise DataError(folder, f"has no {split} document of that number")
