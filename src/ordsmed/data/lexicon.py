"""Lexicon: every distinct word of an encoded folder as UTF-8 bytes, memory-mapped.

    lexicon.bin   bytes of all words, one after the other
    lexicon.idx   "ORDLEXI1" K U | start of each word int64[N + 1]

Words 0 to K - 1 are the tokenizer's vocabulary with its special words; U is the unknown word. The words outside the
vocabulary follow, in the order of their first appearance in the training split and then in the validation split.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError

Ints = NDArray[np.int64]
LETTERS, INDEX = "lexicon.bin", "lexicon.idx"
KEPT = "lexicon.kept"  # words outside the vocabulary of an unfinished encoding, one per line
HEADER = struct.Struct("<8sQQ")
MAGIC = b"ORDLEXI1"
LONGEST = 48  # bytes of a word that a character network reads


class Lexicon:
    """A finished lexicon, memory-mapped."""

    def __init__(self, characters: NDArray[np.uint8], starts: Ints, known: int, unknown: int) -> None:
        self.characters, self.starts = characters, starts
        self.known, self.unknown = known, unknown  # size of the vocabulary, and the number of <UNK>

    @staticmethod
    def open(folder: str | Path) -> Lexicon:
        characters, index = Path(folder) / LETTERS, Path(folder) / INDEX
        for path in (characters, index):
            if not path.is_file():
                raise DataError(path, "no such file", f"{LETTERS} and {INDEX}", "copy or encode it again")
        with index.open("rb") as file:
            head = file.read(HEADER.size)
        size = index.stat().st_size - HEADER.size
        if len(head) < HEADER.size or not head.startswith(MAGIC) or size < 8 or size % 8:
            raise DataError(
                index, "is not a complete index", f"{MAGIC!r} and 64-bit numbers", "copy or encode it again"
            )
        _, known, unknown = HEADER.unpack(head)
        starts: Ints = np.memmap(index, "<i8", "r", HEADER.size, (size // 8,)).view(np.ndarray)
        on_disk = characters.stat().st_size
        if starts[0] != 0 or starts[-1] != on_disk or (np.diff(starts) < 0).any() or not unknown < known < len(starts):
            wanted = f"{int(starts[-1])} bytes, according to {INDEX}, of {len(starts) - 1} words"
            raise DataError(characters, f"{on_disk} bytes", wanted, "copy or encode it again")
        return Lexicon(np.memmap(characters, "u1", "r").view(np.ndarray), starts, known, unknown)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def word(self, number: int) -> bytes:
        return self.characters[self.starts[number] : self.starts[number + 1]].tobytes()

    @property
    def long(self) -> int:
        return int((np.diff(self.starts) > LONGEST).sum())


class LexiconWriter:
    """Writes a lexicon: `with LexiconWriter(folder, words, unknown) as lexicon: lexicon.number(...)`.

    The files exist only if the block ends without error.
    """

    def __init__(self, folder: Path, known: Sequence[str], unknown: int) -> None:
        self.folder, self.known, self.unknown = folder, known, unknown
        self.strangers: dict[str, int] = {}  # words outside the vocabulary
        self.kept = 0, 0  # number of these words on disk, and their bytes
        with files.survive_disk(folder):
            for name in (INDEX, LETTERS):
                (folder / name).unlink(missing_ok=True)

    def keep(self) -> int:
        """Write the words found so far to disk and return their number, for `restore`."""
        path, words = self.folder / KEPT, itertools.islice(self.strangers, self.kept[0], None)
        with files.survive_disk(path), path.open("r+b" if path.exists() else "wb") as file:
            file.truncate(self.kept[1])
            file.seek(self.kept[1])
            file.writelines(f"{word}\n".encode() for word in words)
            file.flush()
            os.fsync(file.fileno())
            self.kept = len(self.strangers), file.tell()
        return self.kept[0]

    def restore(self, count: int) -> bool:
        """Restore the first `count` words that `keep` wrote; return whether they exist."""
        path = self.folder / KEPT
        words = path.read_bytes().split(b"\n")[:-1][:count] if path.exists() else []
        if len(words) < count:
            return False
        self.strangers = {word.decode(): len(self.known) + n for n, word in enumerate(words)}
        self.kept = count, sum(map(len, words)) + count
        return True

    def __enter__(self) -> LexiconWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()

    def number(self, ids: NDArray[np.integer[Any]], strangers: Sequence[str]) -> NDArray[np.integer[Any]]:
        """Replace indices into `strangers` in `ids` by the words' numbers in the lexicon."""
        first = len(self.known)
        numbers = [self.strangers.setdefault(word, first + len(self.strangers)) for word in strangers]
        positions = np.flatnonzero(ids >= first)
        ids[positions] = np.asarray(numbers, ids.dtype)[ids[positions] - first]
        return ids

    def close(self) -> None:
        """Write both files and rename them into place, the index last."""
        sizes = np.zeros(len(self.known) + len(self.strangers) + 1, "<i8")

        def spelled() -> Iterator[bytes]:
            for number, word in enumerate(itertools.chain(self.known, self.strangers), 1):
                characters = word.encode()
                sizes[number] = len(characters)
                yield characters

        def index() -> Iterator[bytes]:
            yield HEADER.pack(MAGIC, len(self.known), self.unknown)
            yield np.cumsum(sizes, dtype="<i8").tobytes()

        with files.survive_disk(self.folder):
            for name, blocks in ((LETTERS, spelled()), (INDEX, index())):
                part = self.folder / f"{name}.part"
                try:
                    with part.open("wb") as file:
                        file.writelines(blocks)
                    files.sync(part)
                    part.replace(self.folder / name)
                finally:
                    part.unlink(missing_ok=True)
            files.sync(self.folder)
