"""Archives of text files: tar, plain or packed, and zip; a member a document, nothing is unpacked onto the disk.

    texts.tar.xz -> a/1.txt, a/2.txt.gz, part.tar (its members too) -> Document(..., id="texts.tar.xz:a/1.txt"), ...

The archive streams by once. A member is never written anywhere, so it does not matter where its name leads; one whose
name leads out of the archive is left out and counted all the same. OpenWebText is a tar of packed tars: what a packed
member holds is told by its first bytes.
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

LONGEST = 8 << 20  # characters of one document; what is longer is cut at a line's end, or at a blank
Member = tuple[str, int, IO[bytes]]  # its name, its bytes, and what it holds
NO_FILES = "links and devices in archives"
_TAR = re.compile(r"\.(?:tar(?:\.gz|\.bz2|\.xz|\.zst)?|tgz|tbz2|txz)\Z", re.IGNORECASE)
_PACKED = re.compile(r"\.t?(?:gz|bz2|xz|zst)\Z", re.IGNORECASE)
_ABOUT_THE_NEXT = (b"L", b"K", b"x", b"g", b"X")  # kinds of headers that hold a long name or facts of the next member
_GAP = re.compile(r"\n[^\S\n]*\n\s*")


@dataclass(frozen=True)
class Tar(TextSource, Choice):
    """Documents of text files in archives."""

    path: str | list[str]
    "archives (.tar, .tar.gz, .tgz, .tar.bz2, .tar.xz, .tar.zst, .zip), folders of them or patterns"
    members: str = "*.txt"
    "pattern of the names of members that are text; packed ones are matched without their .gz, .bz2, .xz or .zst"
    cut: Literal["member", "blank lines"] = "member"
    "what a document is: a member, or what stands between blank lines of one"
    largest: int = 4 << 30
    "bytes of a member, unpacked; what is larger is left out from there on"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, largest=1)

    def read(self, piece: Piece) -> Iterator[Document]:
        """The documents of an archive, member by member."""
        counted, seen, path = read.tally(), 0, piece.path
        with _complaints(path), path.open("rb") as file:
            for document in self._archive(file, path):
                here = file.tell()
                counted.bytes, seen = counted.bytes + max(here - seen, 0), max(here, seen)
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

    def _tar_members(self, unpacked: io.BufferedIOBase, place: object, outer: IO[bytes]) -> Iterator[Member]:
        """Those of a tar, in which what is passed over is looked at too."""
        density = read.Density(place, self.densest, outer.tell())

        def next_block(size: int) -> bytes:  # by read1: what stands before a cut comes out before the complaint
            block: bytes = unpacked.read1(size)
            density.passed(len(block), outer.tell())
            return block

        return _tar_members(next_block)

    def _all(self, members: Iterator[Member], place: str, outer: IO[bytes], *, inner: bool) -> Iterator[Document]:
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
                with _complaints(f"{place}:{name}"):
                    yield from self._member(name, file, f"{place}:{name}", outer, inner=inner)

    def _member(self, name: str, file: IO[bytes], place: str, outer: IO[bytes], *, inner: bool) -> Iterator[Document]:
        unpacked = _unpacked(file, name)
        if _TAR.search(name) or (_PACKED.search(name) and _begins_as_tar(unpacked)):
            if inner:
                read.tally().left_out["archives too deep"] += 1
            else:
                yield from self._all(self._tar_members(unpacked, place, outer), place, outer, inner=True)
        elif not fnmatch(_PACKED.sub("", name).lower(), self.members.lower()):
            read.tally().left_out["members of other names"] += 1
        else:
            blocks = _within(unpacked, self.largest, read.Density(place, self.densest, outer.tell()), outer)
            texts = read.decode(blocks, place, self.errors, encodings.known(self.encoding))
            for number, text in enumerate(_documents(texts, self.cut == "blank lines"), 1):
                yield Document(text, id=place if number == 1 and self.cut == "member" else f"{place}:{number}")


def _documents(texts: Iterator[str], at_gaps: bool) -> Iterator[str]:
    rest = ""
    for text in texts:
        rest += text
        if at_gaps:
            *whole, rest = _GAP.split(rest)
            yield from (document for document in whole if document and not document.isspace())
        while len(rest) > LONGEST:
            read.tally().cut += 1
            line, word = (rest.rfind(sign, LONGEST // 2, LONGEST) + 1 for sign in "\n ")
            at = line or word or LONGEST
            yield rest[:at]
            rest = rest[at:]
    if rest and not rest.isspace():
        yield rest


def _within(file: IO[bytes], largest: int, density: read.Density, outer: IO[bytes]) -> Iterator[bytes]:
    """The blocks of a member, until it is too large."""
    seen = 0
    while block := file.read(read.BLOCK):
        seen += len(block)
        if seen > largest:
            read.tally().left_out["members too large"] += 1
            return
        density.passed(len(block), outer.tell())
        yield block


def _unpacked(file: IO[bytes], name: str) -> Any:
    """What a file holds, unpacked as its name tells; with `peek` and `read1`."""
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
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.blocks, self.held = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        while not self.held and (block := next(self.blocks, None)) is not None:
            self.held = memoryview(block)
        room = memoryview(into)
        size = min(len(room), len(self.held))
        room[:size], self.held = self.held[:size], self.held[size:]
        return size


def _begins_as_tar(file: io.BufferedReader) -> bool:
    return file.peek(512)[257:262] == b"ustar"


class _Header(tarfile.TarInfo):
    """Broken headers are told where `tarfile` takes them for the end, and one that asks for all memory is refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            cut = len(buf) < tarfile.BLOCKSIZE
            problem = "it stops before its end" if cut else f"not a tar at this place ({error})"
            raise tarfile.ReadError(problem) from None
        if header.type in _ABOUT_THE_NEXT and header.size > 1 << 20:
            raise tarfile.ReadError(f"a member's name and facts of {header.size:,} bytes")
        return header


def _tar_members(next_block: Callable[[int], bytes]) -> Iterator[Member]:
    source: Any = SimpleNamespace(read=next_block)
    with tarfile.open(fileobj=source, mode="r|", bufsize=1 << 18, tarinfo=_Header) as tar:
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # millions of them would stay in memory
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
def _complaints(place: object) -> Iterator[None]:
    """One line for whatever is wrong with an archive or a packed member."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(place, "no such file") from None
    except Exception as error:
        if not isinstance(error, read.broken_archive()):
            raise
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0] or "it stops before its end"
        raise DataError(place, f"is broken or cut off: {reason}", "a whole archive", "copy it again") from None
