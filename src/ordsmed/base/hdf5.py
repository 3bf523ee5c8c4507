"""Write HDF5 files with h5py, an optional package, and report a full disk.

The HDF5 library also writes when objects are freed, where no exception can be raised, and it crashes after some errors.
It therefore writes to a Python file object that records the first error and ignores later writes.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ordsmed.base.errors import RecipeError

if TYPE_CHECKING:
    from h5py import File
    from numpy.typing import NDArray


def h5py(location: object) -> ModuleType:
    """Import and return h5py, or raise an error that says how to install it."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        remedy = "pip install 'ordsmed[hdf5]'"
        raise RecipeError(location, "needs h5py, which is not installed", "", remedy) from None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[HDF5Writer]:
    """Yield a writer for a new file. The first write error is raised, at the latest at the end of the block."""
    package = h5py(path)
    with ErrorRecordingFile(path) as file:
        with package.File(file, "w") as opened:
            yield HDF5Writer(opened, file)
        file.complain()


class HDF5Writer:
    def __init__(self, opened: File, file: ErrorRecordingFile) -> None:
        self.opened, self.file = opened, file

    def add(self, name: str, array: NDArray[Any]) -> None:
        self.opened.create_dataset(name, data=array)
        self.file.complain()


class ErrorRecordingFile:
    """A file object for h5py that raises no errors, but records the first one."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w+b", buffering=0)
        self.error: OSError | None = None
        self.place = self.size = 0

    def __enter__(self) -> ErrorRecordingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def complain(self) -> None:
        """Raise the recorded error, if there is one."""
        if self.error:
            raise self.error

    def write(self, block: bytes | memoryview) -> int:
        count = memoryview(block).nbytes
        try:
            if not self.error:
                self.file.seek(self.place)
                left = memoryview(block).cast("B")
                while left:
                    left = left[self.file.write(left) :]
        except OSError as error:
            self.error = error
            with contextlib.suppress(OSError):
                self.file.truncate(0)  # makes room for logging the error
        self.place += count
        self.size = max(self.size, self.place)
        return count

    def read(self, count: int = -1) -> bytes:
        self.file.seek(self.place)
        piece = self.file.read(count)
        self.place += len(piece)
        return piece + bytes(max(count - len(piece), 0) if self.error else 0)

    def readinto(self, room: bytearray | memoryview) -> int:
        piece = self.read(memoryview(room).nbytes)
        memoryview(room).cast("B")[: len(piece)] = piece
        return len(piece)

    def seek(self, position: int, whence: int = 0) -> int:
        self.place = position + (0, self.place, self.size)[whence]
        return self.place

    def tell(self) -> int:
        return self.place

    def truncate(self, size: int | None = None) -> int:
        self.size = self.place if size is None else size
        with contextlib.suppress(OSError):
            if not self.error:
                self.file.truncate(self.size)
        return self.size

    def flush(self) -> None:
        """Do nothing: the file is unbuffered."""
