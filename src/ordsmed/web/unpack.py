"""Unpack archives into a folder. Nothing is written outside of it, and the unpacked size is limited.

a.zip -> .a.zip.unpacked/ -> record -> move each file into the folder

Links, paths outside of the folder, and files that would replace others are refused.
"""

import contextlib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.text import read

TARS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
ENDS = (".zip", *TARS, ".gz", ".bz2", ".xz", ".zst")  # suffixes of files that can be unpacked
DENSEST = 100  # largest ratio of unpacked to packed size
UNPACKED = "the archive was not changed; nothing of it was unpacked"
DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError, OSError)


def unpack(archive: Path, into: Path, unpacked: Mapping[str, int], note: Callable[[dict[str, int]], None]) -> None:
    """Unpack an archive into a folder, unless that was done already. Replace only files that it `unpacked` earlier.

    `note` is called with the files and their sizes before the first of them is moved into the folder.
    """
    if unpacked and all((into / name).is_file() and _size(into / name) == size for name, size in unpacked.items()):
        return
    scratch = archive.with_name(f".{archive.name}.unpacked")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        names = _write_members(archive, scratch)
        for name in names:
            if (into / name).exists() and name not in unpacked:
                raise DataError(into / name, f"exists, and {archive.name} contains a file of that name", "", "move it")
        note(names)
        with files.survive_disk(into):
            for name in names:
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                (scratch / name).replace(into / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def inside(name: str) -> str | None:
    """Return a path relative to a folder, or None if it leads out of the folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    bad = path.is_absolute() or ".." in path.parts or ":" in (path.parts or ("",))[0] or "\0" in name
    return None if bad or not name else str(path)


def _size(path: Path) -> int:
    return path.stat().st_size


def _write_members(archive: Path, folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    left = _size(archive) * DENSEST + (1 << 20)
    for name, blocks in _members(archive):
        # metadata of the machine that packed the archive
        if name.startswith("__MACOSX/") or name.endswith(".DS_Store"):
            continue
        if (safe := inside(name)) is None:
            raise DataError(archive, f"contains {name!r}", "files below its folder only", UNPACKED)
        with files.survive_disk(folder):
            (folder / safe).parent.mkdir(parents=True, exist_ok=True)
            with (folder / safe).open("wb") as written:
                for block in blocks:
                    left -= len(block)
                    if left < 0:
                        raise DataError(archive, f"unpacks to more than {DENSEST} times its size", "", UNPACKED)
                    written.write(block)
            sizes[safe] = _size(folder / safe)
    return sizes


def _members(archive: Path) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield names and contents of the files in an archive. Links and devices are refused."""
    name = archive.name.lower()
    with _archive_errors(archive):
        if name.endswith(".zip"):
            with zipfile.ZipFile(archive) as opened:
                for info in opened.infolist():
                    if stat.S_ISLNK(info.external_attr >> 16):
                        raise DataError(archive, f"contains a link, {info.filename!r}", "files only", UNPACKED)
                    if not info.is_dir():
                        with opened.open(info) as member:
                            yield info.filename, _blocks(member, archive)
        elif name.endswith(TARS):
            with tarfile.open(archive, "r:*") as tar:
                for entry in tar:
                    if not entry.isfile() and not entry.isdir():
                        raise DataError(archive, f"contains a link or device, {entry.name!r}", "files only", UNPACKED)
                    if entry.isfile() and (content := tar.extractfile(entry)):
                        yield entry.name, _blocks(content, archive)
        else:
            yield archive.stem, read.blocks(archive)


def _blocks(member: IO[bytes], archive: Path) -> Iterator[bytes]:
    with _archive_errors(archive):
        while block := member.read(read.BLOCK):
            yield block


@contextlib.contextmanager
def _archive_errors(archive: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise DataError(archive, f"cannot be unpacked: {error}", "", UNPACKED) from None
