"""Vectors on disk: one entry a line of text, in the format that the file's name says, written as they come.

    .h5 .hdf5   a dataset an entry, by the line's number from 0 ("0", "1"...)       ELMo's layout
    .npz        an array an entry, by the same numbers; np.load opens it (400 bytes an entry stay in memory)
    .npy        one matrix, a row an entry: for entries that are all of one shape
    .parquet    a row an entry: line, words, vectors (nested lists)

A file is written beside its place and renamed into it when it is whole.
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
Shape = tuple[int | None, ...]  # of an entry; None: differs from line to line
GROUP = 32 << 20  # bytes of vectors in a row group of Parquet


class VectorWriter(Protocol):
    """Takes entries in the order of their lines."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None: ...

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        """The next entry."""

    def close(self) -> None:
        """What is written when all entries are."""


class Hdf5:
    """One dataset an entry."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.open = contextlib.ExitStack()
        self.file = self.open.enter_context(hdf5.writing(path))

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        self.file.add(str(line), vectors)

    def close(self) -> None:
        self.open.close()


class Npz:
    """One array an entry, in a zip file."""

    def __init__(self, path: Path, shape: Shape, dtype: str) -> None:
        self.file = zipfile.ZipFile(path, "w")

    def add(self, line: int, words: list[str], vectors: Floats) -> None:
        with self.file.open(f"{line}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.ascontiguousarray(vectors), allow_pickle=False)

    def close(self) -> None:
        self.file.close()


class Npy:
    """One array; how many rows it has is written into its header at the end."""

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
        """NumPy leaves room in it for any number of rows."""
        header = {"shape": (self.rows, *self.shape), "fortran_order": False, "descr": self.dtype.str}
        np.lib.format.write_array_header_1_0(self.file, header)


class ParquetVectors:
    """One row an entry, in groups of bounded size."""

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
        self.bytes += vectors.nbytes + 64 + 64 * len(words) + sum(map(len, words))  # an object takes some 60 bytes
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
                many, sizes = (
                    [math.prod(vector.shape[:axis]) for vector in vectors],
                    [vector.shape[axis] for vector in vectors],
                )
                offsets = np.concatenate([[0], np.cumsum(np.repeat(sizes, many))]).astype(np.int32)
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
    """Refuse what cannot be written; `even`: all entries are of one shape."""
    kind = WRITERS.get(target.suffix.lower())
    if kind is None:
        problem = f"ends in {target.suffix}" if target.suffix else "has no ending"
        raise RecipeError(target, problem, f"one of {' '.join(WRITERS)}")
    if kind is Npy and not even:
        problem = "holds one shape, and lines have more and fewer words"
        raise RecipeError(target, problem, ".h5, .npz or .parquet", "or ask for a vector a line, with --of sentences")
    if target.is_dir():
        raise RecipeError(target, "is a folder", "a file to write")
    if target.exists() and not anew:
        raise RecipeError(target, "stands", "a new file", "name another, or add --anew: it moves this one aside")
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
    """A writer whose file takes its place when all went well; else nothing is left of it."""
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
