"""Files that are whole or absent: written beside their place, synced, renamed into it; and checksums."""

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


OTHERS = 512  # files that a process holds open beside those that are counted


@contextlib.contextmanager
def writing(path: Path, *, keep: bool = False) -> Iterator[BinaryIO]:
    """A file in one piece: after a crash there is the old one or the new one, never half of one.

    A file that it replaces is deleted, or with `keep` set aside.
    Also where processes of several machines write the same one. A device or a pipe is written to as it is.
    """
    # what nothing may take the place of: a pipe, a device, an output of this process by name
    outputs = str(path.parent) in ("/dev", "/dev/fd", "/proc/self/fd")
    there = os.path.exists(path) and not os.path.isdir(path)  # those of `Path` raise, for example where a name is long
    if there and (outputs or not os.path.isfile(path)):
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
            if keep and there:
                set_aside(path)
            part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # a disk that may only be read has none, and says so when asked
            part.unlink(missing_ok=True)
        raise


def user_cache() -> Path:
    """Where what can be made again is kept for this user."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "ordsmed"


def write_text(path: Path, text: str) -> None:
    """A text, whole or absent."""
    with writing(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """JSON, whole or absent."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def allow_open(count: int) -> None:
    """Let this process hold so many files open beside its others, as far as its system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHERS if hard == resource.RLIM_INFINITY else min(count + OTHERS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def read_json(path: Path) -> Any:
    """JSON from a file, with a complaint that names it."""
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


LARGEST = 10**300  # of whole numbers: about as far as a float goes
SUSPECT = re.compile(r"\\u[dD][89a-fA-F]|\d{300}")  # half a character; a number of more digits than any float has


def loads(text: str | bytes) -> Any:
    """JSON, but for what Python alone takes for it and no one can write or count with; that is a ValueError too."""
    value = json.loads(text)
    if SUSPECT.search(text if isinstance(text, str) else text.decode("utf-8", "replace")):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise ValueError(f"half a surrogate pair, \\u{ord(half):04x}") from None
        json.loads(text, parse_int=_within)
    return value


def _within(digits: str) -> int:
    """A whole number that a float can take."""
    if abs(whole := int(digits)) >= LARGEST:
        raise ValueError(f"a number of {len(digits)} digits")
    return whole


def lines_of(path: Path) -> list[str]:
    """The lines of a text file, at the ends that files have: `str.splitlines` ends them at signs of Unicode, too."""
    text = path.read_text(encoding="utf-8")
    return text.removesuffix("\n").split("\n") if text else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The tables of JSON lines that a command adds to; a last line that a kill cut off is left out."""
    tables = []
    texts = lines_of(path)
    for number, text in enumerate(texts, 1):
        try:
            tables.append(loads(text))
        except ValueError as error:
            if number < len(texts):
                behind = many(len(texts) - number, "line")
                say(f"{path}: line {number:,} is damaged ({error}); it and {behind} behind it are left out")
            break
    return tables


def read_table(path: Path) -> dict[str, Any]:
    """A JSON file that holds one table."""
    table = read_json(path)
    if not isinstance(table, dict):
        raise DataError(path, "holds no table of facts", "", "the file is damaged; make its folder again")
    return table


def mapped(path: Path, wanted: str, remedy: str, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
    """A .npy file as an array in memory that is read as it is needed; or a complaint that names it.

    `mode` c: changes stay in memory; torch takes such an array, and warns of one that cannot be changed.
    """
    import numpy as np

    try:
        return np.load(path, mmap_mode=mode)
    except FileNotFoundError:
        raise DataError(path, "no such file", wanted, remedy) from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(path, f"cut off, or no .npy file: {error}", wanted, remedy) from None


def sync(path: Path) -> None:
    """Push a file or folder entry to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    """CRC-32 of a file: enough to find a half-written or damaged one."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            crc = zlib.crc32(block, crc)
    return f"{crc:08x}"


def check(path: Path, wanted: str, remedy: str) -> None:
    """Hold a file against the checksum of when it was made."""
    if (digest := checksum(path)) != wanted:
        raise DataError(path, f"is damaged: checksum {digest}", f"{wanted}, of when it was made", remedy)


REMEDIES = {
    errno.ENOSPC: "free some space or name another folder, then go on",
    errno.EDQUOT: "free some of your quota or name another folder, then go on",
    errno.EFBIG: "look at `ulimit -f` and the file system, then go on",
    errno.EROFS: "name another folder to write to",
    errno.EACCES: "name another folder to write to, or ask its owner",
    errno.EPERM: "name another folder to write to, or ask its owner",
    errno.ENAMETOOLONG: "take a shorter name",
    errno.EMFILE: "raise `ulimit -n`, then go on",
    errno.ENFILE: "wait until others on this machine have closed some, then go on",
}


def refusal(error: OSError, path: Path | None = None) -> tuple[str, str]:
    """What the system refused and what helps; where a place is full, how much room is left there."""
    reason, room = error.strerror or str(error), ""
    if path and error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            stat = os.statvfs(path if path.is_dir() else path.parent)
            room = f", {stat.f_bavail * stat.f_frsize / 1e9:.1f} GB free"
    return reason + room, REMEDIES.get(error.errno or 0, "look at this path and its disk, then go on")


@contextlib.contextmanager
def in_a_line() -> Iterator[None]:
    """Turn an error of the system, such as a full disk or a limit of processes, into one line.

    A reader that went away (a broken pipe) is none.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, ImportError, RuntimeError) as error:
        if named := lost_process(error) or unloadable(error):
            raise named from error
        if not isinstance(error, OSError):
            raise
        problem, remedy = refusal(error)
        raise RunError(error.filename or "disk", problem, "", remedy) from error


def unloadable(error: BaseException) -> RunError | None:
    """Return `error` as one line if a shared library cannot be loaded; None: it is another error."""
    words = (str(error).splitlines() or [""])[0]
    if not isinstance(error, ImportError) and getattr(error, "errno", 0) is not None:  # the loader sets no number
        return None
    if not re.search(r"\.so\b|shared object|undefined symbol|not found \(required by", words):
        return None
    remedy = "load the module that holds it, or install the package anew (`ordsmed doctor` looks at the others)"
    return RunError("a library", f"cannot be loaded: {words}", "", remedy)


def unwritable(error: BaseException | None) -> bool:
    """Is it one that may be read but not written to?"""
    return isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


@contextlib.contextmanager
def survive_disk(path: Path) -> Iterator[None]:
    """Turn what a disk raises that is full, read-only or not ours into one line with the place and the remedy."""
    try:
        yield
    except OrdsmedError:
        raise
    except Exception as error:
        if (refused := _refused(error)) is None:
            raise
        problem, remedy = refusal(refused, path)
        raise RunError(path, f"cannot write: {problem}", "", remedy) from error


def refuse_unwritable(folder: Path) -> None:
    """What the system would raise if something were written into a folder, which may be still to make."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(there, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number))


def _refused(error: Exception) -> OSError | None:
    """What the system refused; libraries in Rust (tokenizers, safetensors) tell it in the words of their own errors."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def named(path: Path) -> Path:
    """A folder by a name of its own, so that something can be put beside it: `.` and `..` have none."""
    try:
        place = path.resolve() if path.name in ("", "..") else path
        if path.is_symlink():
            path.resolve(strict=True)
    except (OSError, RuntimeError):  # a link in a circle, or to nowhere
        raise RecipeError(path, "is a link that leads to no folder", "a folder") from None
    if not place.name:
        raise RecipeError(path, "is the root of all folders", "a folder in it")
    return place


def absent(folder: Path) -> list[Path]:
    """Those of a folder and of the ones around it that are not there, from inside to outside."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that hold nothing, in this order."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def set_aside(path: Path, stay: str = "") -> None:
    """Rename a file or folder to the first free `NAME.old-N` and print the new name. `--anew` uses it to keep old work.

    The entry `stay` of a folder is moved back, into a new folder of the old name.
    """
    path = named(path)
    aside = next(
        free for n in itertools.count(1) if not os.path.lexists(free := path.with_name(f"{path.name}.old-{n}"))
    )
    with survive_disk(path):
        path.rename(aside)
        if stay and (aside / stay).exists():
            path.mkdir()
            (aside / stay).rename(path / stay)
    say(f"{path}: the former one is now {aside}")


@contextlib.contextmanager
def making(target: Path, *, keep: bool = False) -> Iterator[Path]:
    """A folder that takes its place when all went well; else nothing is left of it.

    A folder that it replaces is deleted, or with `keep` set aside.
    """
    target = named(target)
    part = target.with_name(f".{target.name}.part")
    around = absent(target.parent)
    with survive_disk(target):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        remove_empty(around)
        raise
    with survive_disk(target):
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if keep and target.exists() and not (target.is_dir() and not any(target.iterdir())):
            set_aside(target)
        elif target.exists():
            say(f"{target}: what stood there is replaced")
            target.rename(old)
        part.rename(target)
        sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
