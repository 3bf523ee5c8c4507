"""Read web pages of WARC files (0.17, 1.0, 1.1) and texts of WET files in bounded memory.

    a.warc.gz -> members unpacked -> "WARC/1.0" + fields + block -> HTTP head | body, unchunked, unpacked -> WarcRecord

Damaged parts in the middle are skipped up to the next record, and counted. A file that is cut off within a record gives
all records before it, then raises an error.
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from ordsmed.base.errors import DataError
from ordsmed.text import read

LARGEST = 16 << 20  # bytes of a body, packed and unpacked; the rest is skipped
_LINE = 1 << 16
_PACKED = 1 << 16  # bytes of a gzip file read at a time: few, because they are copied for every member in them
_FIELDS = 1000  # most lines of a head
_VERSION = re.compile(rb"WARC/\d\.\d+\r?\n\Z")
_GZIP = b"\x1f\x8b\x08"
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,8})[^\r\n]{0,1000}\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/[\d.]+ +(\d{3})\b")


@dataclass(frozen=True)
class WarcRecord:
    """A server's answer, a stored file without an answer, or a text of a WET file (status 200)."""

    url: str
    status: int
    content_type: str
    body: bytes
    place: str


def records(path: Path, densest: int = read.DENSEST) -> Iterator[WarcRecord]:
    """Yield the HTTP responses, files and converted texts of a file, in order. Count repeated pages."""
    for at, fields, block in _blocks(path, densest):
        url, location = fields.get("warc-target-uri", "").strip("<>"), _place(path, at)
        kind = fields.get("warc-type", "").lower()
        if kind == "conversion":
            yield WarcRecord(url, 200, "text/plain", block, location)
        elif kind == "resource":
            yield WarcRecord(url, 200, fields.get("content-type", ""), block, location)
        elif kind == "revisit":
            read.tally().left_out["pages that stand in another record"] += 1
        elif kind == "response" and (status := _STATUS.match(block)):
            parted = _HEAD_END.search(block)
            head, body = (block[: parted.start()], block[parted.end() :]) if parted else (block, b"")
            answer = _fields(head.splitlines()[1:])
            if (plain := _plain_body(body, answer)) is not None:
                yield WarcRecord(url, int(status[1]), answer.get("content-type", ""), plain, location)


def _blocks(path: Path, densest: int) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Yield offset, fields and block of every complete record."""
    data, whole, damaged = _Bytes(path, densest), 0, False
    try:
        while data.skip_blank() or data.gap:
            if block := _block(data):
                yield data.begun, *block
                whole += 1
            else:
                read.tally().left_out["damaged WARC records"] += not damaged
                data.gap = False
            damaged = not block
    except EOFError:
        location = _place(path, data.begun)
        raise DataError(location, "cut off: no complete record follows", "a whole file", "copy it again") from None
    if damaged and not whole:
        raise DataError(path, "holds no WARC record", "WARC or WET files", "name others in `path`")


def _block(data: _Bytes) -> tuple[dict[str, str], bytes] | None:
    """Return fields and block of the next record; None if damaged. Raise EOFError if the file ends within it."""
    line = data.line()
    begins = _VERSION.search(line) is not None
    fields = _fields(list(takewhile(bytes.strip, (data.line() for _ in range(_FIELDS))))) if begins else {}
    length = fields.get("content-length", "")
    block = data.take(int(length), LARGEST) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None
    if block is not None and not data.short:
        return fields, block
    if data.ended() and (begins or b"WARC/".startswith(line[:5])):
        raise EOFError
    return None


def _fields(lines: list[bytes]) -> dict[str, str]:
    parted = (line.decode("utf-8", "replace").partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in parted}


def _plain_body(body: bytes, answer: dict[str, str]) -> bytes | None:
    """Return the body without its transfer encoding, or None if the encoding is unknown."""
    if "chunked" in answer.get("transfer-encoding", "").lower():
        body = _unchunked(body)
    packing = answer.get("content-encoding", "").lower()
    if packing in ("gzip", "x-gzip"):
        # some crawlers unpack the body but keep the field
        return _inflated(body, 31) if body.startswith(_GZIP) else body
    if packing == "deflate":
        return _inflated(body, 15) or _inflated(body, -15) or body  # with zlib's header of two bytes, or without
    if packing not in ("", "identity", "none", "utf-8"):
        read.tally().left_out["pages in an unknown packing"] += 1
        return None
    return body


def _unchunked(body: bytes) -> bytes:
    """Join the chunks without their lengths. A body without chunks is returned unchanged."""
    chunks, at = [], 0
    while (size := _CHUNK.match(body, at)) and (length := int(size[1], 16)):
        chunks.append(body[size.end() : size.end() + length])
        at = size.end() + length
        at += 2 * (body[at : at + 2] == b"\r\n")
    return b"".join(chunks) if chunks or size else body


def _inflated(packed: bytes, window: int) -> bytes:
    with contextlib.suppress(zlib.error):
        return zlib.decompressobj(window).decompress(packed, LARGEST)
    return b""


def _place(path: Path, at: int) -> str:
    return f"{path}: byte {at:,}" + (" (unpacked)" if path.suffix.lower() in (".gz", ".zst") else "")


def _is_gzip(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:  # `read.blocks` reports the error
        return file.read(3) == _GZIP
    return False


def _unpacked(path: Path, densest: int) -> Iterator[bytes | None]:
    """Yield the unpacked blocks of a gzip file, and None where bytes are lost. Raise EOFError if the file is cut off.

    Python's own reader is not used: it drops the last megabyte of a file that is cut off, and stops at damage.
    """
    counted, member, data = read.tally(), None, b""
    density, at_byte = read.Density(path, densest), 0
    with path.open("rb") as file:
        while packed := file.read(_PACKED):
            counted.bytes += len(packed)
            at_byte += len(packed)
            data += packed
            while len(data) >= len(_GZIP) or (member and data):
                if member is None and not data.startswith(_GZIP):
                    at = data.find(_GZIP)
                    lost, data = (data[:at], data[at:]) if at >= 0 else (data[:-2], data[-2:])
                    yield None if lost.strip(b"\0") else b""  # zeros are padding
                    continue
                member = member or zlib.decompressobj(31)
                try:
                    block = member.decompress(data, read.BLOCK)
                    density.passed(len(block), at_byte)
                    yield block
                except zlib.error:
                    yield None
                    member, data = None, data[1:]
                    continue
                member, data = (None, member.unused_data) if member.eof else (member, member.unconsumed_tail)
    if member:
        yield member.flush()
    if (member and not member.eof) or (data and _GZIP.startswith(data)):
        raise EOFError


class _Bytes:
    """The bytes of a file, read by lines and lengths. Reading stops at lost bytes (`gap`) until `gap` is reset."""

    def __init__(self, path: Path, densest: int) -> None:
        self.at = 0  # offset of the next byte
        self.begun = 0  # offset at which `skip_blank` stopped
        self.gap = self.short = False
        self._coming: Iterator[bytes | None] = (
            _unpacked(path, densest) if _is_gzip(path) else read.blocks(path, densest)
        )
        self._buffer, self._next = b"", 0
        self._cut = False

    def skip_blank(self) -> bool:
        """Skip line ends and return whether anything follows. Raise EOFError if the file is cut off here."""
        while self._more() and self._buffer[self._next] in b"\r\n":
            self._read(1)
        self.begun = self.at
        if self.ended() and self._cut:
            raise EOFError
        return self._more()

    def ended(self) -> bool:
        return not self._more() and not self.gap

    def line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and len(line) < _LINE and self._more():
            end = self._buffer.find(b"\n", self._next) + 1 or len(self._buffer)
            line += self._read(min(end - self._next, _LINE - len(line)))
        return line

    def take(self, length: int, keep: int) -> bytes:
        """Return the first `keep` of the next `length` bytes and skip the rest. Set `short` if there are fewer."""
        parts, wanted = [], length
        while wanted and self._more():
            piece = self._read(min(wanted, len(self._buffer) - self._next))
            parts.append(piece[: max(keep - (length - wanted), 0)])
            wanted -= len(piece)
        self.short = wanted > 0
        return b"".join(parts)

    def _read(self, length: int) -> bytes:
        piece = self._buffer[self._next : self._next + length]
        self._next, self.at = self._next + length, self.at + length
        return piece

    def _more(self) -> bool:
        while self._next == len(self._buffer) and not self.gap:
            try:
                block = next(self._coming)
            except StopIteration:
                break
            except EOFError:
                self._cut = True
                break
            self._buffer, self._next, self.gap = block or b"", 0, block is None
        return self._next < len(self._buffer)
