"""HDF5 files through h5py, which is optional: a clear word where it is missing, and where the disk is full.

The library writes when it lets go of things, where errors cannot be raised, and crashes after some. So it is given a
file that keeps the first error, takes everything from then on, and is asked for it at the end.
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


def h5py(place: object) -> ModuleType:
    """The package, or how to get it."""
    try:
        return importlib.import_module("h5py")
    except ImportError:
        remedy = "pip install 'ordsmed[hdf5]'"
        raise RecipeError(place, "needs h5py, which is not installed", "", remedy) from None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Sheet]:
    """A new file; its first error, if there was any, is raised at the end at the latest."""
    package = h5py(path)
    with Sturdy(path) as file:
        with package.File(file, "w") as opened:
            yield Sheet(opened, file)
        file.complain()


class Sheet:
    """An open file that is written."""

    def __init__(self, opened: File, file: Sturdy) -> None:
        self.opened, self.file = opened, file

    def add(self, name: str, array: NDArray[Any]) -> None:
        """A dataset."""
        self.opened.create_dataset(name, data=array)
        self.file.complain()


class Sturdy:
    """A file as h5py wants it, that raises nothing but keeps what it would have raised."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w+b", buffering=0)
        self.error: OSError | None = None
        self.place = self.size = 0

    def __enter__(self) -> Sturdy:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def complain(self) -> None:
        """Raise what went wrong, if anything did."""
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
                self.file.truncate(0)  # there is room again for who has to tell of it
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

    def seek(self, place: int, whence: int = 0) -> int:
        self.place = place + (0, self.place, self.size)[whence]
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
        """Nothing is held back here."""
