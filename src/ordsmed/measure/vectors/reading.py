"""A file of float32 vectors (.npy) whose blocks several processes write in any order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class VectorFile:
    path: Path

    def make(self, count: int, width: int) -> None:
        """Create the file, filled with zeros; an existing file is replaced."""
        with files.survive_disk(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(self.path, "w+", np.dtype("<f4"), (count, width)).flush()

    def write(self, begin: int, vectors: Floats) -> None:
        """Write rows from index `begin` on and flush them to disk."""
        offset = np.load(self.path, mmap_mode="r").offset
        with files.survive_disk(self.path), self.path.open("r+b") as file:
            file.seek(offset + begin * vectors.shape[1] * 4)
            file.write(vectors.astype("<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Floats:
        return np.load(self.path, mmap_mode="c")
