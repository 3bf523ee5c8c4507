"""Files that grow while an index is made, rows (.npy) or bytes. After a kill they resume at the last noted length."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError

HEAD = 128  # bytes of a .npy header, as NumPy pads it


class GrowingFile:
    """A file of bytes to which data is appended."""

    head = 0

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open the file after its first `size` bytes, those of the last `keep`, and drop the rest."""
        self.path = path
        with files.survive_disk(path):
            there = path.stat().st_size - self.head if path.exists() else 0
            if there < size:
                raise DataError(path, f"{max(there, 0):,} bytes", f"at least {size:,}", "start again with --anew")
            self.file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
            self.file.truncate(size + self.head)
            self.file.seek(size + self.head)
        self.size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file. Errors are ignored here, because a full disk was reported when it was written."""
        with contextlib.suppress(OSError):
            self.file.close()

    def add(self, data: bytes) -> None:
        with files.survive_disk(self.path):
            self.file.write(data)
        self.size += len(data)

    def keep(self) -> int:
        """Flush the file to the disk and return its length in bytes."""
        with files.survive_disk(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return self.size

    def finish(self) -> None:
        self.keep()


class GrowingRows(GrowingFile):
    """Rows of one shape and type. The file is a valid .npy once it is finished."""

    head = HEAD

    def __init__(self, path: Path, shape: Sequence[int], dtype: str, size: int = 0) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype).newbyteorder("<")
        super().__init__(path, size)

    def put(self, rows: NDArray[np.generic]) -> None:
        self.add(np.ascontiguousarray(rows, self.dtype).tobytes())

    @property
    def count(self) -> int:
        return self.size // (self.dtype.itemsize * int(np.prod(self.shape)))

    def finish(self) -> None:
        with files.survive_disk(self.path):
            self.file.seek(0)
            header = {"shape": (self.count, *self.shape), "fortran_order": False, "descr": self.dtype.str}
            np.lib.format.write_array_header_1_0(self.file, header)
            assert self.file.tell() == HEAD
        super().finish()


class Noted:
    """A file with the synced lengths of growing files. Notes of another run, with another mark, are ignored."""

    def __init__(self, path: Path, mark: str) -> None:
        self.path, self.mark = path, mark
        table = files.read_table(path) if path.exists() else {}
        self.facts: dict[str, int] = table.get("facts", {}) if table.get("mark") == mark else {}

    def keep(self, growing: Mapping[str, GrowingFile], **facts: int) -> None:
        """Sync all files, then write their lengths and `facts`."""
        sizes = {name: file.keep() for name, file in growing.items()}
        self.facts |= {**sizes, **facts}
        files.write_json(self.path, {"mark": self.mark, "facts": self.facts})

    def __getitem__(self, name: str) -> int:
        return int(self.facts.get(name, 0))
