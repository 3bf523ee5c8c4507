"""Read text files in bounded memory: expand paths, unpack, decode and split into lines.

    "texts", "a/*.txt.gz" -> files in sorted order -> blocks of bytes (about 1 MB) -> text -> lines without their ends

Text is UTF-8, or in the encoding that a source names or detects (text/encodings.py). Invalid bytes raise an error with
their offset, or are replaced and counted. A file that unpacks to far more than text does is refused. A byte order mark
at the start is dropped. "\\r\\n" and a lone "\\r" end a line as "\\n" does. A line longer than a cap is cut at white
space. What is read is counted in the innermost `tallied()`, so a progress display does not need to know the reader.
"""

import codecs
import contextlib
import functools
import glob
import importlib
import io
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Literal

from ordsmed.base.errors import DataError, meant
from ordsmed.base.say import say
from ordsmed.base.screen import command
from ordsmed.text import encodings

Errors = Literal["strict", "replace"]
FETCHED = "work/fetch/"  # where `ordsmed fetch` writes the files that recipes name
LESSONS = "lessons/"  # where docs/lessons.py writes the texts of the `tiny` recipes
BLOCK = 1 << 20
LONGEST = 8 << 20  # characters of a line; a longer one is cut at white space
DENSEST = 200  # largest ratio of unpacked to packed bytes ...
WINDOW = 1 << 26  # ... measured over this many unpacked bytes
LISTED = 5  # most unread entries of a folder that are named in the message
ARCHIVES = tuple([".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar", ".parquet"])
OFFICE = (".docx", ".docm", ".odt", ".pdf")  # read by the corpus `office`


class CutOff(DataError):
    """A compressed file ends too early."""


class Density:
    """Detects compression bombs: data that unpack to far more than text does, wherever in the file they begin."""

    def __init__(self, place: object, densest: int, at: int = 0) -> None:
        self.place, self.densest, self.at = place, densest, at
        self.unpacked = 0

    def passed(self, unpacked: int, at: int) -> None:
        """Count `unpacked` more bytes, with `at` packed bytes read so far. Raise DataError if the ratio is too high."""
        self.unpacked += unpacked
        if self.densest and self.unpacked >= WINDOW:
            if self.unpacked > self.densest * max(at - self.at, 1):
                problem = f"unpacks to more than {self.densest:,} times its size (after byte {self.at:,})"
                remedy = "leave it out, unpack it yourself, or raise `densest` of the corpus"
                raise DataError(self.place, problem, "text", remedy)
            self.unpacked, self.at = 0, at


@dataclass(eq=False)  # tallies are compared by identity, not by their counts
class Tally:
    """Counters of a reader: bytes of (packed) files, replaced invalid sequences, cut lines and documents.

    `left_out` counts what a source left out, by a short name for the report ("redirects").
    """

    bytes: int = 0
    replaced: int = 0
    cut: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    encodings: Counter[str] = field(default_factory=Counter)  # of files and archive members that are not in UTF-8


class _Tallies(threading.local):
    """The tallies of this thread, the innermost last. Workers may be threads."""

    def __init__(self) -> None:
        self.stack = [Tally()]


_tallies = _Tallies()


@contextlib.contextmanager
def tallied() -> Iterator[Tally]:
    tally = Tally()
    _tallies.stack.append(tally)
    try:
        yield tally
    finally:
        _tallies.stack.remove(tally)


@contextlib.contextmanager
def replacements_told(path: object) -> Iterator[None]:
    """Report how many invalid sequences of a file were replaced while it was read in this block."""
    count_before = tally().replaced
    yield
    if count := tally().replaced - count_before:
        say(f"{path}: {count:,} sequences of invalid UTF-8 replaced by U+FFFD")


def tally() -> Tally:
    return _tallies.stack[-1]


def files(paths: str | Sequence[str]) -> list[Path]:
    """Expand files, folders (all their files except hidden ones) and patterns into sorted files without duplicates."""
    named = [paths] if isinstance(paths, str) else list(paths)
    if not named:
        raise DataError("path", "an empty list", "files, folders or patterns", "name at least one")
    return list(dict.fromkeys(file for name in named for file in _expand(name)))


def size(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def stamp(paths: Sequence[Path]) -> list[list[str | int]]:
    """Return path, size and modification time of each file. A changed file changes the stamp."""
    return [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


def lines(
    path: Path,
    errors: Errors | None = None,
    *,
    longest: int = LONGEST,
    encoding: str | None = None,
    densest: int = DENSEST,
) -> Iterator[str]:
    """Yield the lines of a text file, packed or plain, without their line ends."""
    pending: list[str] = []  # the parts of the current line
    length = 0
    for text in texts(path, errors, encoding, densest):
        first, *rest = text.split("\n")
        pending.append(first)
        length += len(first)
        if rest:
            yield from _cut("".join(pending), longest)
            yield from (piece for line in rest[:-1] for piece in _cut(line, longest))
            pending, length = [rest[-1]], len(rest[-1])
        elif length > longest:
            *pieces, last = _cut("".join(pending), longest)
            yield from pieces
            pending, length = [last], len(last)
    if length:
        yield from _cut("".join(pending), longest)


def texts(
    path: Path, errors: Errors | None = None, encoding: str | None = None, densest: int = DENSEST
) -> Iterator[str]:
    """Yield the text of a file in blocks. Every line end is "\\n"."""
    return decode(blocks(path, densest), path, errors, encoding, packed=path.suffix.lower() in _UNPACKERS)


def decode(
    raw: Iterator[bytes],
    location: object,
    errors: Errors | None = None,
    encoding: str | None = None,
    *,
    packed: bool = False,
) -> Iterator[str]:
    """Yield the text of blocks of bytes. Every line end is "\\n".

    `encoding` is the user's setting, a name or "auto"; None: the source has no such setting and is UTF-8. `errors` is
    the user's setting; None: the source has no such setting and is strict. Error messages only suggest settings that
    exist.
    """
    sample, raw = _begin(raw, encodings.SAMPLE if encoding == encodings.AUTO else 4)
    known = _encoding(sample, location, encoding)
    pieces = (
        _from_utf8(raw, location, errors, encoding, packed)
        if known == "utf-8"
        else _from_others(raw, location, errors, known, packed)
    )
    is_started, carriage = False, ""
    for text in chain(pieces, (None,)):
        last, text = text is None, text or ""
        if not is_started and text:
            text, is_started = text.removeprefix("\ufeff"), True
        if carriage or "\r" in text:
            text = carriage + text
            carriage = "\r" if text.endswith("\r") and not last else ""  # the next block may begin with its "\n"
            text = text[: len(text) - len(carriage)].replace("\r\n", "\n").replace("\r", "\n")
        if text:
            yield text


def _begin(raw: Iterator[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Return at least the first `size` bytes (fewer if there are no more), and an iterator over all blocks."""
    first, length = list[bytes](), 0
    try:
        while length < size and (block := next(raw, None)) is not None:
            first.append(block)
            length += len(block)
    except Exception as error:  # first yield the blocks before the error, then raise it again
        return b"".join(first), _and_then(first, error)
    return b"".join(first), chain(first, raw)


def _and_then(first: list[bytes], error: Exception) -> Iterator[bytes]:
    yield from first
    raise error


def _encoding(sample: bytes, location: object, declared: str | None) -> str:
    """Return the encoding of a text that begins with `sample`. Count it in the tally if it is not UTF-8."""
    if declared not in (None, "utf-8"):
        known = encodings.guess(sample, len(sample) < encodings.SAMPLE) if declared == encodings.AUTO else declared
        if known is None:
            problem = "its encoding cannot be detected"
            raise DataError(location, problem, "", 'set `encoding`, such as "cp1252"')
        if known != "utf-8":
            tally().encodings[known] += 1
        return known
    if (mark := encodings.marked(sample[: encodings.SAMPLE])) not in (None, "utf-8"):
        raise DataError(location, f"is {mark.upper()}", "text in UTF-8", _remedy(declared, mark))
    return "utf-8"


def _remedy(declared: str | None, encoding: str) -> str:
    return "convert it" if declared is None else f'convert it, or set encoding = "{encoding}" or "auto"'


def _encoding_remedy(data: bytes, declared: str | None, errors: Errors | None) -> str:
    """Return the remedy for text that is not UTF-8, with a guess of its encoding if the source has a setting for it."""
    remedies = ["convert the file"]
    if declared is not None:
        guess = encodings.guess(data[: encodings.SAMPLE], whole=False)
        named = "`encoding`" if guess in (None, "utf-8", declared) else f'encoding = "{guess}" or "auto"'
        remedies.append(f"or set {named}")
    if errors is not None:
        remedies.append('or errors = "replace"' if remedies[1:] else 'or set errors = "replace"')
    return ", ".join(remedies)


def _from_utf8(
    raw: Iterator[bytes], location: object, errors: Errors | None, declared: str | None, packed: bool
) -> Iterator[str]:
    at, remainder = 0, b""  # at: offset of `rest` in the (unpacked) file
    for block in _and_end(raw):
        data = remainder + (block or b"")
        try:
            text, used = _decode(data, block is None, errors, location, at, packed)
        except DataError as error:
            raise DataError(error.place, error.found, error.wanted, _encoding_remedy(data, declared, errors)) from None
        if (b"\x1b$" in data or b"~{" in data) and (encoding := encodings.escaped(data)):
            problem = f"is {encoding.upper()}, which is written in ASCII"
            raise DataError(location, problem, "text in UTF-8", _remedy(declared, encoding))
        at, remainder = at + used, data[used:]
        if text:
            yield text


def _from_others(
    raw: Iterator[bytes], location: object, errors: Errors | None, known: str, packed: bool
) -> Iterator[str]:
    decoder, seen = codecs.getincrementaldecoder(known)("ordsmed.counted" if errors == "replace" else "strict"), 0
    for block in _and_end(raw):
        seen += len(block or b"")
        try:
            if text := decoder.decode(block or b"", final=block is None):
                yield text
        except UnicodeDecodeError as error:
            at, byte = seen - len(error.object) + error.start, error.object[error.start]
            problem = f"byte {at:,}{' (unpacked)' * packed}: invalid {known.upper()} (0x{byte:02x}: {error.reason})"
            remedy = 'convert it, or set another `encoding` or errors = "replace"'
            raise DataError(location, problem, f"text in {known}", remedy) from None


def _counted(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    tally().replaced += 1
    return "\ufffd", error.end


codecs.register_error("ordsmed.counted", _counted)


def blocks(path: Path, densest: int = DENSEST) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if its name ends in .gz, .bz2, .xz or .zst. `densest` 0: no limit."""
    if path.name.lower().endswith(OFFICE):
        raise DataError(path, "is a document of a word processor, or a PDF", "text", "`ordsmed corpus office` reads it")
    if path.name.lower().endswith(ARCHIVES):
        remedy = "unpack it first"
        raise DataError(path, "is an archive or not plain text", "text, or text packed as .gz .bz2 .xz .zst", remedy)
    counted, seen, density = tally(), 0, Density(path, densest)
    unpack = _UNPACKERS.get(path.suffix.lower(), _plain)
    try:
        with path.open("rb") as file:
            if unpack is not _plain and not file.read(1):
                raise EOFError
            file.seek(0)
            for block in unpack(file):
                counted.bytes, seen = counted.bytes + file.tell() - seen, file.tell()
                density.passed(len(block), seen)
                yield block
            counted.bytes += file.tell() - seen
    except EOFError:
        problem = f"is cut off: its {path.suffix} data stop before their end"
        raise CutOff(path, problem, "a whole file", "copy it again") from None
    except FileNotFoundError:
        raise DataError(path, "no such file") from None
    except broken() as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise DataError(path, problem, "", "copy it again, or repair it") from None


def decoded(data: bytes, encodings: list[str], errors: Errors, location: object) -> tuple[str, str]:
    """Decode data with the first of the encodings that fits. Return the text and the name of the encoding."""
    failed: list[UnicodeDecodeError] = []
    for encoding in encodings:
        try:
            return data.decode(encoding).removeprefix("\ufeff"), encoding
        except UnicodeDecodeError as error:
            failed.append(error)
    if errors == "strict":
        at, reason = failed[0].start, failed[0].reason
        problem = f"byte {at:,}: invalid {encodings[0].upper()} (0x{data[at]:02x}: {reason})"
        raise DataError(location, problem, f"text in {' or '.join(encodings)}", 'convert it, or set errors = "replace"')
    text = data.decode(encodings[0], "replace").removeprefix("\ufeff")
    tally().replaced += text.count("\ufffd") - data.count(b"\xef\xbf\xbd")  # U+FFFD in the file itself is text
    return text, encodings[0]


def zstandard_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a zstandard file with any number of frames. Raise EOFError if it is cut off."""
    import zstandard

    frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
    while packed := file.read(1 << 12):  # small reads, so that even the densest data unpack to little at a time
        while packed:
            if frame.eof:
                frame = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
            if block := frame.decompress(packed):
                yield block
            packed = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise EOFError


def broken() -> tuple[type[Exception], ...]:
    """Return the exceptions raised when a file cannot be read or unpacked."""
    import lzma

    errors: tuple[type[Exception], ...] = (OSError, zlib.error, lzma.LZMAError)
    # Without the import zstandard can raise no error; getattr because a reader may be closed during the import.
    error = getattr(sys.modules.get("zstandard"), "ZstdError", None)
    return (*errors, error) if error else errors


def broken_archive() -> tuple[type[Exception], ...]:
    """Return the exceptions raised when an archive is corrupt."""
    import struct
    import tarfile
    import zipfile

    corrupt = (EOFError, IndexError, NotImplementedError, OverflowError, ValueError, struct.error)
    return (tarfile.TarError, zipfile.BadZipFile, *corrupt, *broken())


def _expand(name: str) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_dir():
        inner = [p for p in path.rglob("*") if not any(part.startswith(".") for part in p.relative_to(path).parts)]
        paths = [p for p in inner if p.is_file()]
        _report_unread(
            path, tuple(sorted(f"{p.relative_to(path)} ({reason})" for p in inner if (reason := _unread(p))))
        )
    elif path.exists():
        paths = [path]
    else:
        matches = [Path(match) for match in glob.glob(str(path), recursive=True)]
        paths = [file for match in matches for file in (_expand(str(match)) if match.is_dir() else [match])]
    if not paths:
        problem = "a folder without files" if path.is_dir() else "no such file or folder"
        neighbors = [str(neighbor) for neighbor in path.parent.glob("[!.]*")] if path.parent.is_dir() else []
        remedy = meant(str(path), neighbors) or fetching(name) or "relative paths are from the current folder"
        raise DataError(name, problem, "a file, a folder or a pattern such as texts/*.txt.gz", remedy)
    return sorted(paths)


def _unread(path: Path) -> str:
    if path.is_symlink() and not path.is_file():
        return "a link to a folder" if path.is_dir() else "a link that leads nowhere"
    return "" if path.is_file() or path.is_dir() else "a FIFO, socket or device"


@functools.cache
def _report_unread(folder: Path, names: tuple[str, ...]) -> None:
    if names:
        shown = [*names[:LISTED], *([f"{len(names) - LISTED:,} more"] if names[LISTED:] else [])]
        say(f"{folder}: left out: {', '.join(shown)}")


def fetching(name: str) -> str:
    """Return how to get a missing file of `ordsmed fetch` or of the lessons; empty for other paths."""
    if name.startswith(LESSONS):
        return "`python3 docs/lessons.py`, in the source of ordsmed, writes it"
    source = name.removeprefix(FETCHED).partition("/")[0] if name.startswith(FETCHED) else ""
    return f"`{command('fetch', source)}` gets it" if source else ""


def _cut(line: str, longest: int) -> Iterator[str]:
    while len(line) > longest:
        tally().cut += 1
        at = longest
        while at > longest // 2 and not line[at].isspace():
            at -= 1
        at = at if line[at].isspace() else longest
        yield line[:at]
        line = line[at:].lstrip()
    yield line


def _decode(
    data: bytes, final: bool, errors: Errors | None, location: object, at: int, packed: bool
) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, "strict", final)
    except UnicodeDecodeError as error:
        if errors != "replace":
            where = f"byte {at + error.start:,}{' (unpacked)' * packed}"
            problem = f"{where}: invalid UTF-8 (0x{data[error.start]:02x}: {error.reason})"
            raise DataError(location, problem, "text in UTF-8") from None
    text, used = codecs.utf_8_decode(data, "replace", final)
    tally().replaced += text.count("\ufffd") - data[:used].count(b"\xef\xbf\xbd")  # U+FFFD in the file itself is text
    return text, used


def _and_end(raw: Iterator[bytes]) -> Iterator[bytes | None]:
    yield from raw
    yield None


def _plain(file: IO[bytes] | io.BufferedIOBase) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _standard(module: str) -> Callable[[IO[bytes]], Iterator[bytes]]:
    def unpack(file: IO[bytes]) -> Iterator[bytes]:
        with importlib.import_module(module).open(file) as unpacked:
            yield from _plain(unpacked)

    return unpack


_UNPACKERS = {".gz": _standard("gzip"), ".bz2": _standard("bz2"), ".xz": _standard("lzma"), ".zst": zstandard_blocks}
