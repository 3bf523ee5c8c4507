"""Archives of text files: tar, plain or packed, and zip; one document per member, without unpacking to disk.

    texts.tar.xz -> a/1.txt, a/2.txt.gz, part.tar (its members too) -> Document(..., id="texts.tar.xz:a/1.txt"), ...

The archive is read as a stream. Members are not written anywhere, so their names are harmless; members with names
outside of the archive are nevertheless left out and counted. OpenWebText is a tar of packed tars, so the first bytes of
a packed member decide what it is.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, Literal

from ordsmed.base.checks import at_least
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.text import encodings, read
from ordsmed.text.document import Document
from ordsmed.text.source import Piece, TextSource

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LONGEST = 8 << 20  # characters of a document; a longer one is cut at a line end, or at a space
Member = tuple[str, int, IO[bytes]]  # name, size in bytes, content
NO_FILES = "links and devices in archives"
_TAR = re.compile(r"\.(?:tar(?:\.gz|\.bz2|\.xz|\.zst)?|tgz|tbz2|txz)\Z", re.IGNORECASE)
_PACKED = re.compile(r"\.t?(?:gz|bz2|xz|zst)\Z", re.IGNORECASE)
_ABOUT_THE_NEXT = (
    b"L",
    b"K",
    b"x",
    b"g",
    b"X",
)  # types of headers that contain a long name or metadata of the next member
_GAP = re.compile(r"\n[^\S\n]*\n\s*")


@dataclass(frozen=True)
class Tar(TextSource, Choice):
    """Documents of text files in archives."""

    path: str | list[str]
    "archives (.tar, .tar.gz, .tgz, .tar.bz2, .tar.xz, .tar.zst, .zip), folders of them or patterns"
    members: str = "*.txt"
    "pattern for the names of text members; packed ones are matched without .gz, .bz2, .xz or .zst"
    cut: Literal["member", "blank lines"] = "member"
    "what a document is: a member, or the text between blank lines of a member"
    largest: int = 4 << 30
    "most unpacked bytes of a member; the rest is left out"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, largest=1)

    def read(self, piece: Piece) -> Iterator[Document]:
        counted, seen, path = read.tally(), 0, piece.path
        with _named_errors(path), path.open("rb") as file:
            for document in self._archive(file, path):
                start = file.tell()
                counted.bytes, seen = counted.bytes + max(start - seen, 0), max(start, seen)
                yield document
        counted.bytes += path.stat().st_size - seen

    def _archive(self, file: IO[bytes], path: Path) -> Iterator[Document]:
        if path.suffix.lower() == ".zip":
            yield from self._all(_zip_members(file), str(path), file, inner=False)
            return
        unpacked = _unpacked(file, path.name)
        if _TAR.search(path.name) or _begins_as_tar(unpacked):
            yield from self._all(self._tar_members(unpacked, path, file), str(path), file, inner=False)
        else:
            read.tally().left_out["files other than archives"] += 1

    def _tar_members(self, unpacked: io.BufferedIOBase, location: object, outer: IO[bytes]) -> Iterator[Member]:
        """Yield the members of a tar. Skipped bytes are checked for bombs, too."""
        density = read.Density(location, self.densest, outer.tell())

        def next_block(size: int) -> bytes:  # read1, so that all data before a cut are returned before the error
            block: bytes = unpacked.read1(size)
            density.passed(len(block), outer.tell())
            return block

        return _tar_members(next_block)

    def _all(self, members: Iterator[Member], location: str, outer: IO[bytes], *, inner: bool) -> Iterator[Document]:
        left_out = read.tally().left_out
        for name, size, file in members:
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts:
                left_out["members outside the archive"] += 1
            elif any(part.startswith(".") for part in parts):
                left_out["hidden members"] += 1
            elif size > self.largest and not _TAR.search(name) and not _PACKED.search(name):
                left_out["members too large"] += 1
            else:
                with _named_errors(f"{location}:{name}"):
                    yield from self._member(name, file, f"{location}:{name}", outer, inner=inner)

    def _member(
        self, name: str, file: IO[bytes], location: str, outer: IO[bytes], *, inner: bool
    ) -> Iterator[Document]:
        unpacked = _unpacked(file, name)
        if _TAR.search(name) or (_PACKED.search(name) and _begins_as_tar(unpacked)):
            if inner:
                read.tally().left_out["archives too deep"] += 1
            else:
                yield from self._all(self._tar_members(unpacked, location, outer), location, outer, inner=True)
        elif not fnmatch(_PACKED.sub("", name).lower(), self.members.lower()):
            read.tally().left_out["members of other names"] += 1
        else:
            blocks = _within(unpacked, self.largest, read.Density(location, self.densest, outer.tell()), outer)
            texts = read.decode(blocks, location, self.errors, encodings.canonical_name(self.encoding))
            for number, text in enumerate(_documents(texts, self.cut == "blank lines"), 1):
                yield Document(text, id=location if number == 1 and self.cut == "member" else f"{location}:{number}")


def _documents(texts: Iterator[str], at_gaps: bool) -> Iterator[str]:
    remainder = ""
    for text in texts:
        remainder += text
        if at_gaps:
            *whole, remainder = _GAP.split(remainder)
            yield from (document for document in whole if document and not document.isspace())
        while len(remainder) > LONGEST:
            read.tally().cut += 1
            line, word = (remainder.rfind(sign, LONGEST // 2, LONGEST) + 1 for sign in "\n ")
            at = line or word or LONGEST
            yield remainder[:at]
            remainder = remainder[at:]
    if remainder and not remainder.isspace():
        yield remainder


def _within(file: IO[bytes], largest: int, density: read.Density, outer: IO[bytes]) -> Iterator[bytes]:
    seen = 0
    while block := file.read(read.BLOCK):
        seen += len(block)
        if seen > largest:
            read.tally().left_out["members too large"] += 1
            return
        density.passed(len(block), outer.tell())
        yield block


def _unpacked(file: IO[bytes], name: str) -> Any:
    packed = _PACKED.search(name.lower())
    match packed and packed[0][-2:]:
        case "gz":
            return gzip.GzipFile(fileobj=file)
        case "z2":
            return bz2.BZ2File(file)
        case "xz":
            return lzma.LZMAFile(file)
        case "st":
            return io.BufferedReader(_Blocks(read.zstandard_blocks(file)))
    return file


class _Blocks(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.rest = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        while not self.rest and (block := next(self.blocks, None)) is not None:
            self.rest = memoryview(block)
        room = memoryview(into)
        size = min(len(room), len(self.rest))
        room[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def _begins_as_tar(file: io.BufferedReader) -> bool:
    return file.peek(512)[257:262] == b"ustar"


class _Header(tarfile.TarInfo):
    """Raises errors for broken headers, which `tarfile` takes for the end, and for headers with huge contents."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            cut = len(buf) < tarfile.BLOCKSIZE
            problem = "it stops before its end" if cut else f"not a tar header ({error})"
            raise tarfile.ReadError(problem) from None
        if header.type in _ABOUT_THE_NEXT and header.size > 1 << 20:
            raise tarfile.ReadError(f"a member's name and metadata of {header.size:,} bytes")
        return header


def _tar_members(next_block: Callable[[int], bytes]) -> Iterator[Member]:
    source: Any = SimpleNamespace(read=next_block)
    with tarfile.open(fileobj=source, mode="r|", bufsize=1 << 18, tarinfo=_Header) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # otherwise millions of them stay in memory
            if not member.isreg() and not member.isdir():
                read.tally().left_out[NO_FILES] += 1
            elif member.isreg() and (data := tar.extractfile(member)) is not None:
                yield member.name.encode(errors="replace").decode(), member.size, data


def _zip_members(file: IO[bytes]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.flag_bits & 1:
                read.tally().left_out["encrypted members"] += 1
            elif (kind := stat.S_IFMT(member.external_attr >> 16)) and kind not in (stat.S_IFREG, stat.S_IFDIR):
                read.tally().left_out[NO_FILES] += 1
            elif not member.is_dir():
                with archive.open(member) as data:
                    yield member.filename, member.file_size, data


@contextlib.contextmanager
def _named_errors(location: object) -> Iterator[None]:
    """Raise a DataError in place of the exceptions that a missing file or a damaged archive or member causes."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(location, "no such file") from None
    except Exception as error:
        if not isinstance(error, read.broken_archive()):
            raise
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0] or "it stops before its end"
        raise DataError(location, f"is broken or cut off: {reason}", "a whole archive", "copy it again") from None
