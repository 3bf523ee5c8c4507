"""Checksums of the files of an index, which detect damaged files.

Opening an index always compares file sizes. The checksums of an index of up to SMALL bytes are compared as well. In a
larger index, only files with another modification time are read again. `ordsmed index INDEX --check` reads all files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.folder import RECIPE

SMALL = 256 << 20  # bytes; computing their checksums takes about 0.2 s
WORDS = ("bm25.json", "passages.npy", "starts.npy", "weights.npy")
DATA = (
    *("texts.bin", "passages.npy", "documents.jsonl", "documents.npy", "vectors.npy", "tokens.npy", "vectors.faiss"),
    *(f"words/{name}" for name in WORDS),
)
Checksums = Mapping[str, Sequence[int | str]]  # per file: bytes, CRC-32, modification time in nanoseconds
REMEDY = "make the index again, or restore a copy of it"


def checksums(folder: Path, data: str = "") -> dict[str, list[int | str]]:
    """Return the checksums of all files of an index. `data` names the subfolder of its data, if it has one."""
    table: dict[str, list[int | str]] = {}
    for name in (RECIPE, *(str(Path(data, name)) for name in DATA)):
        if (path := folder / name).is_file():
            stat = path.stat()
            table[name] = [stat.st_size, files.checksum(path), stat.st_mtime_ns]
    return table


def check(folder: Path, known: Checksums, *, whole: bool = False) -> None:
    """Raise an error if a file is not as it was written. With `whole`, read every file, however large."""
    small = sum(int(size) for size, _, _ in known.values()) <= SMALL
    for name, (size, checksum, changed) in known.items():
        path = folder / name
        try:
            stat = path.stat()
        except OSError as error:
            raise DataError(path, f"cannot be read: {error.strerror}", "a readable file", REMEDY) from None
        if stat.st_size != size:
            raise DataError(path, f"is damaged: {stat.st_size:,} bytes", f"{size:,}", REMEDY)
        if whole or small or stat.st_mtime_ns != changed:
            files.check(path, str(checksum), REMEDY)
