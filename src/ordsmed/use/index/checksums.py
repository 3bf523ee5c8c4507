"""Checksums of the files of an index: what was written is what is read.

Sizes are compared whenever an index is opened; so are the checksums of an index of up to SMALL bytes. Of a larger index
a file is read again where its time of change is another. `ordsmed index INDEX --check` reads all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.folder import RECIPE

SMALL = 256 << 20  # bytes: their checksums take some 0.2 s
WORDS = ("bm25.json", "passages.npy", "starts.npy", "weights.npy")
DATA = (
    *("texts.bin", "passages.npy", "documents.jsonl", "documents.npy", "vectors.npy", "tokens.npy", "vectors.faiss"),
    *(f"words/{name}" for name in WORDS),
)
Checksums = Mapping[str, Sequence[int | str]]  # of each file its bytes, CRC-32 and time of change in nanoseconds
REMEDY = "make the index again, or take a copy of it"


def checksums(folder: Path, data: str = "") -> dict[str, list[int | str]]:
    """Return those of all files of an index, whose data stand in a folder of its own where `data` names one."""
    table: dict[str, list[int | str]] = {}
    for name in (RECIPE, *(str(Path(data, name)) for name in DATA)):
        if (path := folder / name).is_file():
            stat = path.stat()
            table[name] = [stat.st_size, files.checksum(path), stat.st_mtime_ns]
    return table


def check(folder: Path, known: Checksums, *, whole: bool = False) -> None:
    """Refuse files that are not as they were written; `whole`: read all of them, however many bytes they have."""
    small = sum(int(size) for size, _, _ in known.values()) <= SMALL
    for name, (size, checksum, changed) in known.items():
        path = folder / name
        try:
            stat = path.stat()
        except OSError as error:
            raise DataError(path, f"cannot be read: {error.strerror}", "a file of an index", REMEDY) from None
        if stat.st_size != size:
            raise DataError(path, f"is damaged: {stat.st_size:,} bytes", f"{size:,}", REMEDY)
        if whole or small or stat.st_mtime_ns != changed:
            files.check(path, str(checksum), REMEDY)
