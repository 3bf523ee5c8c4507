"""Archives are unpacked into their folder completely or not at all."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from ordsmed.base.errors import DataError
from ordsmed.web.unpack import inside, unpack

TEXT = bytes(range(256)) * 40


def packed_zip(members: dict[str, bytes], **kinds: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (kinds.get(name, stat.S_IFREG) | 0o644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return made.getvalue()


def packed_tar(members: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), kind, "../evil"
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def spread(archive: Path, brought: dict[str, int] | None = None) -> dict[str, int]:
    """Unpack into `to`; what was noted, nothing if nothing was done."""
    noted: dict[str, int] = {}
    unpack(archive, archive.parent / "to", brought or {}, noted.update)
    return noted


def lying(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


MEMBERS = {"in/": b"", "in/x.txt": b"x" * 50, "y": b"", "__MACOSX/._y": b"?", "in/.DS_Store": b"?"}


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.zip", packed_zip(MEMBERS), {"in/x.txt": b"x" * 50, "y": b""}),
        ("A.TAR.GZ", packed_tar({"./in/x.txt": b"x" * 50, "y": b""}), {"in/x.txt": b"x" * 50, "y": b""}),
        ("x.txt.gz", gzip.compress(TEXT), {"x.txt": TEXT}),
        ("x.txt.bz2", bz2.compress(TEXT), {"x.txt": TEXT}),
    ],
)
def test_what_is_in_an_archive(tmp_path: Path, name: str, data: bytes, found: dict[str, bytes]) -> None:
    (tmp_path / name).write_bytes(data)
    sizes = {key: len(text) for key, text in found.items()}
    assert spread(tmp_path / name) == sizes
    assert lying(tmp_path) == {name: data, **{f"to/{key}": text for key, text in found.items()}}
    assert spread(tmp_path / name, sizes) == {}  # it lies there
    (tmp_path / "to" / next(iter(found))).write_bytes(b"short")
    assert spread(tmp_path / name, sizes) == sizes
    assert lying(tmp_path / "to") == found


def test_nothing_else_is_replaced_and_nothing_lies_there_before_it_is_noted(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(packed_zip({"x": b"x", "y": b"y"}))

    def cut_off(found: dict[str, int]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "to", {}, cut_off)
    assert list(tmp_path.iterdir()) == [archive]
    (tmp_path / "to").mkdir()
    (tmp_path / "to/y").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"to/y: exists, and a.zip contains a file of that name"):
        spread(archive)
    assert lying(tmp_path / "to") == {"y": b"mine"}


@functools.cache
def evil_archives() -> dict[str, tuple[bytes, str]]:
    whole = packed_zip({"a": TEXT})
    return {
        "up.zip": (packed_zip({"good": b"g", "../evil": b"e"}), "contains '../evil'"),
        "root.zip": (packed_zip({"/evil": b"e"}), "contains '/evil'"),
        "back.zip": (packed_zip({"..\\evil": b"e"}), "below its folder only"),
        "drive.zip": (packed_zip({"C:evil": b"e"}), "contains 'C:evil'"),
        "link.zip": (packed_zip({"evil": b"/etc"}, evil=stat.S_IFLNK), "contains a link"),
        "bomb.zip": (packed_zip({"evil": bytes(9 << 20)}), "more than 100 times its size"),
        "cut.zip": (packed_zip(MEMBERS)[:-30], "cannot be unpacked"),
        "torn.zip": (whole[:60] + b"torn" + whole[64:], "cannot be unpacked"),
        "up.tar.gz": (packed_tar({"../evil": b"e"}), "contains '../evil'"),
        "link.tar.gz": (packed_tar({"evil": b""}, tarfile.SYMTYPE), "contains a link or device"),
        "hard.tar.gz": (packed_tar({"evil": b""}, tarfile.LNKTYPE), "contains a link or device"),
        "pipe.tar.gz": (packed_tar({"evil": b""}, tarfile.FIFOTYPE), "contains a link or device"),
        "cut.tar.gz": (packed_tar({"a": os.urandom(3000)})[:-900], "cannot be unpacked"),
        "no.tar.gz": (b"no archive", "cannot be unpacked"),
        "cut.gz": (gzip.compress(TEXT)[:-9], "is cut off"),
        "bomb.gz": (gzip.compress(bytes(9 << 20)), "more than 100 times its size"),
    }


@pytest.mark.parametrize("name", evil_archives())
def test_evil_archives_leave_nothing(tmp_path: Path, name: str) -> None:
    data, told = evil_archives()[name]
    archive = tmp_path / "in" / name
    archive.parent.mkdir()
    archive.write_bytes(data)
    with pytest.raises(DataError) as caught:
        spread(archive)
    assert str(caught.value).startswith(f"{archive}: ")
    assert told in str(caught.value)
    assert lying(tmp_path) == {f"in/{name}": data}


def test_places_below_a_folder() -> None:
    assert [inside(name) for name in ("a/b", "./a", "a\\b", "a:b/c", ".")] == ["a/b", "a", "a/b", None, "."]
    assert {inside(name) for name in ("", "/a", "a/../b", "..\\a", "C:/a", "a\0b")} == {None}
