"""HDF5 files whose disk is full: one error, however late, and no crash; whole ones are as h5py itself writes them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kit.absent import Lazy
from ordsmed.base import hdf5
from ordsmed.base.errors import RecipeError

h5py = Lazy("h5py")


@pytest.mark.long
def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    arrays = {f"a/{n}": np.random.default_rng(n).normal(size=(n % 7, 30)).astype(np.float32) for n in range(3_000)}
    with hdf5.writing(tmp_path / "x.h5") as file:
        for name, array in arrays.items():
            file.add(name, array)
    with h5py.File(tmp_path / "x.h5") as found:
        assert all(np.array_equal(found[name][()], array) for name, array in arrays.items())


def test_a_file_keeps_its_length_whatever_is_written_into_it(tmp_path: Path) -> None:
    with hdf5.ErrorRecordingFile(tmp_path / "x") as file:
        assert file.write(b"0123456789") == 10
        assert (file.seek(2), file.write(b"ab"), file.tell()) == (2, 2, 4)
        assert (file.seek(0, 2), file.seek(-3, 1), file.read(9)) == (10, 7, b"789")
        assert (file.truncate(6), file.seek(0, 2)) == (6, 6)
        file.seek(1)
        assert (file.truncate(), file.seek(0, 2)) == (1, 1)
    assert (tmp_path / "x").read_bytes() == b"0"


@pytest.mark.parametrize("room", [0, 900, 5_000, 100_000])
def test_a_full_disk_is_one_error(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the library had still to write when the room ran out."""
    opened = Path.open

    class Small:
        def __init__(self, path: Path) -> None:
            self.file = opened(path, "w+b", buffering=0)

        def write(self, block: memoryview) -> int:
            if self.file.tell() + len(block) > room:
                raise OSError(28, "No space left on device")
            return self.file.write(block)

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    monkeypatch.setattr(Path, "open", lambda path, *_, **__: Small(path))

    def fill() -> None:
        with hdf5.writing(tmp_path / "x.h5") as file:
            for n in range(2_000):
                file.add(str(n), np.ones((3, 40), np.float32))

    with pytest.raises(OSError, match="No space left"):
        fill()
    assert (tmp_path / "x.h5").stat().st_size == 0


def test_without_the_package_a_person_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(RecipeError, match=r"needs h5py.*pip install 'ordsmed\[hdf5\]'"):
        hdf5.h5py(tmp_path)


def test_a_file_as_the_library_wants_it(tmp_path: Path) -> None:
    """Places from the start, from here and from the end; short reads; cut at a size or where it stands."""
    with hdf5.ErrorRecordingFile(tmp_path / "x") as file:
        assert file.write(b"0123456789") == file.tell() == 10
        assert (file.seek(2), file.read(3), file.tell()) == (2, b"234", 5)
        assert (file.seek(2, 1), file.seek(-3, 1), file.seek(-1, 2), file.seek(0, 2)) == (7, 4, 9, 10)
        file.seek(8)
        assert file.read() == b"89"
        file.seek(4)
        assert file.write(memoryview(b"ab")) == 2
        room = bytearray(4)
        file.seek(3)
        assert (file.readinto(room), bytes(room)) == (4, b"3ab6")
        assert (file.truncate(5), file.seek(0, 2)) == (5, 5)
        file.seek(3)
        assert file.truncate() == 3
    assert (tmp_path / "x").read_bytes() == b"012"


def test_a_full_disk_is_told_at_the_first_dataset(tmp_path: Path) -> None:
    """Not only when all were made: an archive of a day of vectors is a day lost."""
    with hdf5.ErrorRecordingFile(tmp_path / "x") as file:
        sheet = hdf5.HDF5Writer(SimpleNamespace(create_dataset=lambda *_, **__: None), file)
        sheet.add("one", np.ones(1))
        file.error = OSError(28, "No space left on device")
        with pytest.raises(OSError, match="No space left"):
            sheet.add("two", np.ones(1))
        file.seek(0)
        assert file.read(4) == bytes(4), "the library reads back what it could not write"
