"""Files of vectors with one entry per line of text, in the format given by the file's suffix.

    .h5 .hdf5   a dataset per entry, named by the line's number from 0 ("0", "1"...), as in ELMo's layout
    .npz        an array per entry, with the same names, for np.load (400 bytes per entry stay in memory)
    .npy        one matrix with a row per entry, for entries of equal shape
    .parquet    a row per entry: line, words, vectors (nested lists)

A file is written under a temporary name, entry by entry, and renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files, hdf5
from ordsmed.base.errors import RecipeError

Floats = NDArray[np.floating[Any]]
Shape = tuple[int | None, ...]  # of an entry; None: this dimension differs from line to line
GROUP = 32 << 20  # bytes of vectors in a Parquet row group


class VectorWriter(Protocol):
    """A writer of entries in the order of their lines."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None: ...

    def add(self, line: int, words: list[str], vectors: Floats) -> None: ...

    def close(self) -> None:
        """Write what is left after the last entry."""


class Hdf5:
    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.open = contextlib.ExitStack()
        self.file = self.open.enter_context(hdf5.writing(path))

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        self.file.add(str(line), vectors)

    def close(self) -> None:
        self.open.close()


class Npz:
    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.file = zipfile.ZipFile(path, "w")

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        with self.file.open(f"{line}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.ascontiguousarray(vectors), allow_pickle=False)

    def close(self) -> None:
        self.file.close()


class Npy:
    """One array. The number of its rows is written into the header at the end."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.file, self.shape, self.rows = path.open("wb"), shape, 0
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self._head()

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        self.file.write(np.ascontiguousarray(vectors, self.dtype).tobytes())
        self.rows += 1

    def close(self) -> None:
        self.file.seek(0)
        self._head()
        self.file.close()

    def _head(self) -> None:
        """Write the header, in which NumPy leaves room for any number of rows."""
        header = {"shape": (self.rows, *self.shape), "fortran_order": False, "descr": self.dtype.str}
        np.lib.format.write_array_header_1_0(self.file, header)


class ParquetVectors:
    """One row per entry, in row groups of limited size."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.arrow = importlib.import_module("pyarrow")
        kind = self.arrow.from_numpy_dtype(dtype)
        for _ in shape:
            kind = self.arrow.list_(kind)
        columns = {"line": self.arrow.int64(), "words": self.arrow.list_(self.arrow.string()), "vectors": kind}
        self.schema = self.arrow.schema(list(columns.items()))
        self.file = importlib.import_module("pyarrow.parquet").ParquetWriter(path, self.schema)
        self.held: list[tuple[int, list[str], Floats]] = []
        self.bytes = 0

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        self.held.append((line, words, vectors))
        self.bytes += vectors.nbytes + 64 + 64 * len(words) + sum(map(len, words))  # an object takes about 60 bytes
        if self.bytes >= GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self.file.close()

    def _flush(self) -> None:
        if self.held:
            lines, words, vectors = map(list, zip(*self.held, strict=True))
            array = self.arrow.array(np.concatenate([vector.ravel() for vector in vectors]))
            for axis in reversed(range(vectors[0].ndim)):
                counts = [math.prod(vector.shape[:axis]) for vector in vectors]
                sizes = [vector.shape[axis] for vector in vectors]
                offsets = np.concatenate([[0], np.cumsum(np.repeat(sizes, counts))]).astype(np.int32)
                array = self.arrow.ListArray.from_arrays(self.arrow.array(offsets), array)
            table = self.arrow.table([lines, words, array], schema=self.schema)
            self.file.write_table(table, row_group_size=len(lines))
            self.held, self.bytes = [], 0


WRITERS: dict[str, type[VectorWriter]] = {
    ".h5": Hdf5,
    ".hdf5": Hdf5,
    ".npz": Npz,
    ".npy": Npy,
    ".parquet": ParquetVectors,
}


def check(target: Path, *, even: bool, anew: bool) -> None:
    """Raise an error if the file cannot be written. `even` says that all entries have one shape."""
    kind = WRITERS.get(target.suffix.lower())
    if kind is None:
        problem = f"ends in {target.suffix}" if target.suffix else "has no ending"
        raise RecipeError(target, problem, f"one of {' '.join(WRITERS)}")
    if kind is Npy and not even:
        problem = "needs entries of one shape, but lines differ in their number of words"
        raise RecipeError(target, problem, ".h5, .npz or .parquet", "or write a vector per line, with --of sentences")
    if target.is_dir():
        raise RecipeError(target, "is a folder", "a file to write")
    if target.exists() and not anew:
        remedy = "name another, or add --anew, which moves this one aside"
        raise RecipeError(target, "already exists", "a new file", remedy)
    if kind is Hdf5:
        hdf5.h5py(target)
    if kind is ParquetVectors:
        try:
            importlib.import_module("pyarrow")
        except ImportError:
            remedy = "pip install 'ordsmed[parquet]'"
            raise RecipeError(target, "needs pyarrow, which is not installed", "", remedy) from None


@contextlib.contextmanager
def writing(target: Path, shape: Shape, dtype: str) -> Iterator[VectorWriter]:
    """Yield a writer whose file appears when it is complete. After an error nothing is left of it."""
    partial = target.with_name(f".{target.name}.part")
    try:
        with files.survive_disk(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            writer = WRITERS[target.suffix.lower()](partial, shape, dtype)
        try:
            yield writer
        except BaseException:
            with contextlib.suppress(Exception):
                writer.close()
            raise
        with files.survive_disk(target):
            writer.close()
            files.sync(partial)
            if target.exists():
                files.set_aside(target)
            partial.replace(target)
            files.sync(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
