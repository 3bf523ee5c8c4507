"""Pack Python's library and packages into one file, which a job copies to each node's local disk.

folders on this Python's path -> FILE.tar: 0/, 1/, ... -> sbcast, unpacked once per node -> PYTHONPATH=LOCAL/0:LOCAL/1

A process opens thousands of files when it starts. On a shared disk, hundreds of starting processes wait for each other.
"""

import hashlib
import os
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import files
from ordsmed.base.menu import PACKAGE_ROOT

PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class PackedPython:
    path: Path
    folders: tuple[Path, ...]  # folders on Python's path, in order


def folders_of_python() -> tuple[Path, ...]:
    """Return the folders of Python's library, packages and ordsmed. Other folders on the path are not packed."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    known = {*library, *(folder / "lib-dynload" for folder in library), PACKAGE_ROOT.parent.resolve()}
    entries = dict.fromkeys(Path(entry).resolve() for entry in sys.path if entry)
    return tuple(folder for folder in entries if folder.is_dir() and (folder in known or folder.name in PACKAGES))


def pack(location: Path, folders: tuple[Path, ...] = ()) -> PackedPython:
    """Write the tar file into a folder, with a name that depends on its contents. If it exists, reuse it."""
    folders = folders or folders_of_python()
    members = [(folder, path) for folder in folders for path in _files_of(folder, folders)]
    packed = PackedPython(location / f"packed-{_key(members)}.tar", folders)
    if not packed.path.exists():
        with files.survive_disk(packed.path):
            location.mkdir(parents=True, exist_ok=True)
        with files.writing(packed.path) as file, tarfile.open(fileobj=file, mode="w") as tar:
            for folder, path in members:
                tar.add(path, f"{folders.index(folder)}/{path.relative_to(folder)}", recursive=False)
    return packed


def _files_of(folder: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    """Yield all files of a folder, except subfolders that are on Python's path themselves."""
    for at, inside, names in os.walk(folder):
        above = Path(at)
        aside = PACKAGES if above == folder else ()  # packages of another Python, or packed separately
        inside[:] = sorted(name for name in inside if name not in aside and above / name not in folders)
        links = [name for name in inside if (above / name).is_symlink()]
        yield from (above / name for name in sorted([*links, *names]))


def _key(members: list[tuple[Path, Path]]) -> str:
    """Return a hash of names, sizes and times, which changes if anything is installed or modified."""
    digest = hashlib.sha256()
    for folder, path in members:
        stat = path.lstat()
        digest.update(f"{folder}\0{path.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]
