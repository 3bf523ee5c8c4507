"""Files that grow while an index is made, and go on at a length that was noted after a kill: rows (.npy) and bytes."""

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

HEAD = 128  # bytes before the rows of an array, as NumPy pads them


class GrowingFile:
    """Bytes, one after the other."""

    head = 0

    def __init__(self, path: Path, size: int = 0) -> None:
        """Opened behind the first `size` bytes, which stood when it was kept."""
        self.path = path
        with files.survive_disk(path):
            there = path.stat().st_size - self.head if path.exists() else 0
            if there < size:
                raise DataError(path, f"{max(there, 0):,} bytes", f"{size:,}, as it was left", "add --anew")
            self.file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
            self.file.truncate(size + self.head)
            self.file.seek(size + self.head)
        self.size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever ended it; of a full disk was told."""
        with contextlib.suppress(OSError):
            self.file.close()

    def add(self, data: bytes) -> None:
        with files.survive_disk(self.path):
            self.file.write(data)
        self.size += len(data)

    def keep(self) -> int:
        """How many bytes stand on the disk now."""
        with files.survive_disk(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())
        return self.size

    def finish(self) -> None:
        """Nothing more is added."""
        self.keep()


class GrowingRows(GrowingFile):
    """Rows of one shape and type; the file is a .npy once it is closed."""

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
    """What of growing files stands, in a file of its own; of another work nothing is taken."""

    def __init__(self, path: Path, mark: str) -> None:
        self.path, self.mark = path, mark
        table = files.read_table(path) if path.exists() else {}
        self.facts: dict[str, int] = table.get("facts", {}) if table.get("mark") == mark else {}

    def keep(self, growing: Mapping[str, GrowingFile], **facts: int) -> None:
        """All of them on the disk first, then how long they are."""
        sizes = {name: file.keep() for name, file in growing.items()}
        self.facts |= {**sizes, **facts}
        files.write_json(self.path, {"mark": self.mark, "facts": self.facts})

    def __getitem__(self, name: str) -> int:
        return int(self.facts.get(name, 0))
