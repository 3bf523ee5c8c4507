"""Atomic writing of files and folders (temporary name, sync, rename), JSON, checksums, and errors of disks."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import resource
import shutil
import socket
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from ordsmed.base.errors import DataError, OrdsmedError, RecipeError, RunError, lost_process
from ordsmed.base.say import many, say

if TYPE_CHECKING:
    from numpy.typing import NDArray


OTHER_OPEN_FILES = 512  # allowance for files that a process opens in addition to the counted ones


@contextlib.contextmanager
def writing(path: Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """Write a file atomically: after a crash, the file is the old or the new one, never a partial one.

    The old file is deleted, or with `keep` renamed to NAME.old-1. Processes on several machines may write the same
    file. A device or pipe is written directly.
    """
    outputs = str(path.parent) in ("/dev", "/dev/fd", "/proc/self/fd")
    exists = os.path.exists(path) and not os.path.isdir(path)  # `Path.exists` raises an error for a long name
    if exists and (outputs or not os.path.isfile(path)):  # a rename would replace a device or pipe by a file
        with survive_disk(path), path.open("wb") as file:
            yield file
        return
    part = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        with survive_disk(path):
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if keep and exists:
                set_aside(path)
            part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # on a read-only disk, unlink raises an error
            part.unlink(missing_ok=True)
        raise


def user_cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "ordsmed"


def write_text(path: Path, text: str) -> None:
    with writing(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def allow_open(count: int) -> None:
    """Raise this process's limit of open files to allow `count` of them, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_OPEN_FILES if hard == resource.RLIM_INFINITY else min(count + OTHER_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def read_json(path: Path) -> Any:
    """Return the contents of a JSON file. Raise a DataError that names the file if it cannot be read."""
    try:
        return loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise DataError(path, "no such file") from None
    except RecursionError:
        raise DataError(path, "is nested too deeply to be read", "JSON that ordsmed or a library wrote") from None
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}", "", "the file is damaged; make its folder again") from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from None


LARGEST = 10**300  # limit of integers, about the largest float
SUSPECT = re.compile(r"\\u[dD][89a-fA-F]|\d{300}")  # possibly half a surrogate pair, or an integer out of range


def loads(text: str | bytes) -> Any:
    """Parse JSON. Raise a ValueError also for lone surrogates, and for integers beyond the range of a float."""
    value = json.loads(text)
    if SUSPECT.search(text if isinstance(text, str) else text.decode("utf-8", "replace")):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = error.object[error.start]
            raise ValueError(f"half a surrogate pair, \\u{ord(surrogate):04x}") from None
        json.loads(text, parse_int=_parse_int)
    return value


def _parse_int(digits: str) -> int:
    """Parse an integer, and raise a ValueError if it is too large for a float."""
    if abs(whole := int(digits)) >= LARGEST:
        raise ValueError(f"a number of {len(digits)} digits")
    return whole


def split_lines(path: Path) -> list[str]:
    """Return the lines of a text file, split at line feeds only: `str.splitlines` also splits at Unicode separators."""
    text = path.read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the tables of a JSON lines file. Lines from the first damaged one on are ignored.

    A process that is killed while it appends leaves a truncated last line, which is ignored silently.
    """
    tables = []
    texts = split_lines(path)
    for number, text in enumerate(texts, 1):
        try:
            tables.append(loads(text))
        except ValueError as error:
            if number < len(texts):
                after = many(len(texts) - number, "line")
                say(f"{path}: line {number:,} is damaged ({error}); it and {after} after it are ignored")
            break
    return tables


def read_table(path: Path) -> dict[str, Any]:
    table = read_json(path)
    if not isinstance(table, dict):
        raise DataError(path, "is not a JSON table", "", "the file is damaged; make its folder again")
    return table


def mapped(path: Path, wanted: str, remedy: str, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
    """Return a .npy file as a memory-mapped array.

    `mode` r is read-only, about which torch warns. With `mode` c the array may be changed in memory, not in the file.
    """
    import numpy as np

    try:
        return np.load(path, mmap_mode=mode)
    except FileNotFoundError:
        raise DataError(path, "no such file", wanted, remedy) from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(path, f"truncated, or not a .npy file: {error}", wanted, remedy) from None


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file, which detects damage."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def check(path: Path, wanted: str, remedy: str) -> None:
    """Raise an error if a file's checksum differs from the recorded one."""
    if (digest := checksum(path)) != wanted:
        raise DataError(path, f"is damaged: checksum {digest}", f"{wanted}, the recorded one", remedy)


REMEDIES = {
    errno.ENOSPC: "free some space or name another folder, then resume",
    errno.EDQUOT: "free some of your quota or name another folder, then resume",
    errno.EFBIG: "check `ulimit -f` and the file system, then resume",
    errno.EROFS: "name another folder to write to",
    errno.EACCES: "name another folder to write to, or ask its owner",
    errno.EPERM: "name another folder to write to, or ask its owner",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EMFILE: "raise `ulimit -n`, then resume",
    errno.ENFILE: "wait until other processes of this machine have closed some, then resume",
}


def describe_os_error(error: OSError, path: Path | None = None) -> tuple[str, str]:
    """Return the system's message, with the free space if the disk is full, and a remedy."""
    reason, space = error.strerror or str(error), ""
    if path and error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            stat = os.statvfs(path if path.is_dir() else path.parent)
            space = f", {stat.f_bavail * stat.f_frsize / 1e9:.1f} GB free"
    return reason + space, REMEDIES.get(error.errno or 0, "check this path and its disk, then resume")


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Convert a system error in this block, except a closed pipe, to a RunError, which is printed as one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ImportError, RuntimeError) as error:
        if with_name := lost_process(error) or library_error(error):
            raise with_name from error
        if not isinstance(error, OSError):
            raise
        problem, remedy = describe_os_error(error)
        raise RunError(error.filename or "disk", problem, "", remedy) from error


def library_error(error: BaseException) -> RunError | None:
    """Return a RunError if `error` means that a shared library cannot be loaded; None for other errors."""
    words = (str(error).splitlines() or [""])[0]
    if not isinstance(error, ImportError) and getattr(error, "errno", 0) is not None:  # the loader sets no number
        return None
    if not re.search(r"\.so\b|shared object|undefined symbol|not found \(required by", words):
        return None
    remedy = "load the module that contains it, or install the package again (`ordsmed doctor` checks the others)"
    return RunError("a library", f"cannot be loaded: {words}", "", remedy)


def is_read_only(error: BaseException | None) -> bool:
    """Return whether an error means that a path must not be written to."""
    return isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def survive_disk(path: Path) -> Iterator[None]:
    """Convert an OSError in this block to a RunError with the path and a remedy."""
    try:
        yield
    except OrdsmedError:
        raise
    except Exception as error:
        if (cause := _os_error(error)) is None:
            raise
        problem, remedy = describe_os_error(cause, path)
        raise RunError(path, f"cannot write: {problem}", "", remedy) from error


def refuse_unwritable(folder: Path) -> None:
    """Raise the OSError that writing into a folder would raise. The folder need not exist."""
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    if not parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(parent, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(parent).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number))


def _os_error(error: Exception) -> OSError | None:
    """Return `error` as an OSError, or None. Rust libraries (tokenizers, safetensors) put its number in a message."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def with_name(path: Path) -> Path:
    """Return the path of a folder such that its last part is a name: `.` and `..` are resolved."""
    try:
        folder = path.resolve() if path.name in ("", "..") else path
        if path.is_symlink():
            path.resolve(strict=True)
    except (OSError, RuntimeError):  # a circular or dangling link
        raise RecipeError(path, "is a broken link", "a folder") from None
    if not folder.name:
        raise RecipeError(path, "is the root folder", "a folder in it")
    return folder


def missing_folders(folder: Path) -> list[Path]:
    """Return those of the folder and its parents that do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty, in this order."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def set_aside(path: Path, stay: str = "") -> None:
    """Rename a file or folder to the first free `NAME.old-N` and print the new name, as `--anew` does.

    The entry `stay` of a folder is moved back into a new folder of the old name.
    """
    path = with_name(path)
    aside = next(
        free for n in itertools.count(1) if not os.path.lexists(free := path.with_name(f"{path.name}.old-{n}"))
    )
    with survive_disk(path):
        path.rename(aside)
        if stay and (aside / stay).exists():
            path.mkdir()
            (aside / stay).rename(path / stay)
    say(f"{path}: moved the old one to {aside}")


@contextlib.contextmanager
def making(target: Path, *, keep: bool = False) -> Iterator[Path]:
    """Make a folder atomically: yield a temporary folder, which gets its name at the end and is deleted on an error.

    An existing folder is deleted, or with `keep` renamed to NAME.old-1.
    """
    target = with_name(target)
    part = target.with_name(f".{target.name}.part")
    new_parents = missing_folders(target.parent)
    with survive_disk(target):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        remove_empty(new_parents)
        raise
    with survive_disk(target):
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if keep and target.exists() and not (target.is_dir() and not any(target.iterdir())):
            set_aside(target)
        elif target.exists():
            say(f"{target}: replacing the existing one")
            target.rename(old)
        part.rename(target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
