"""Read and write TFRecords: byte strings with lengths and checksums, plain or compressed as a whole (gzip, zlib).

    length (8 bytes) | its checksum (4) | the record | its checksum (4) | ...

A file is read some megabytes at a time and checked block by block. Errors name the file, the number of the record (from
1) and the byte at which it begins.
"""

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.binary.crc32c import crc32c_many, crc32c_of_words, masked
from ordsmed.base.errors import DataError

HEAD, TAIL = 12, 4
BLOCK = 8 << 20  # bytes read at once
LONGEST = 1 << 30  # bytes of a record; a longer one is an error
WANTED = "TFRecords: lengths, records and their checksums, plain or compressed by gzip or zlib"


@dataclass(frozen=True)
class RecordBlock:
    """Checked records that were read together."""

    path: Path
    raw: bytes
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    first: int  # number of the first record in the file, from 1
    at: int  # byte of the uncompressed file at which the block begins

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, number: int) -> memoryview:
        start = int(self.starts[number])
        return memoryview(self.raw)[start : start + int(self.lengths[number])]

    def place(self, number: int) -> str:
        return f"{self.path}: record {self.first + number:,}, at byte {self.at + self.starts[number] - HEAD:,}"


def read(path: Path) -> Iterator[RecordBlock]:
    with path.open("rb") as file:
        source = _unpacked(file, path)
        buffer, first, at, whole = b"", 1, 0, 0
        while more := _more(source, whole - len(buffer), path):
            buffer += more
            starts, whole = _starts(buffer), 0
            if starts:
                block = _checked(path, buffer, starts, first, at)
                yield block
                end = int(block.starts[-1] + block.lengths[-1]) + TAIL
                buffer, first, at = buffer[end:], first + len(block), at + end
            elif len(buffer) >= HEAD:
                whole = HEAD + TAIL + _length(buffer, f"{path}: record {first:,}, at byte {at:,}")
    if buffer:
        location = f"{path}: record {first:,}, at byte {at:,}"
        size = _length(buffer, location) if len(buffer) >= HEAD else HEAD
        wrong = f"{len(buffer):,} bytes are left of a record of {size + HEAD + TAIL:,}"
        raise DataError(location, f"is truncated: {wrong}", WANTED, "copy it again")


def framed(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield records in the format of a file, several at a time."""
    batch: list[bytes] = []
    for record in records:
        batch.append(record)
        if len(batch) == 512:
            yield _framed(batch)
            batch = []
    if batch:
        yield _framed(batch)


def _framed(batch: list[bytes]) -> bytes:
    data = np.frombuffer(b"".join(batch), np.uint8)
    lengths = np.array([len(record) for record in batch], np.int64)
    sums = masked(crc32c_many(data, np.cumsum(lengths) - lengths, lengths)).tolist()
    heads = masked(crc32c_of_words(lengths.astype(np.uint64))).tolist()
    return b"".join(
        struct.pack("<QI", len(record), head) + record + struct.pack("<I", total)
        for record, head, total in zip(batch, heads, sums, strict=True)
    )


def _unpacked(file: IO[bytes], path: Path) -> IO[bytes]:
    head = file.read(HEAD)
    file.seek(0)
    if len(head) == HEAD and _right(head):
        return file
    if head[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
    if len(head) > 1 and head[0] & 0x0F == 8 and (head[0] << 8 | head[1]) % 31 == 0:
        return _Inflated(file)  # type: ignore[return-value]
    if len(head) and len(head) < HEAD:
        problem = f"is truncated: {len(head)} bytes are left"
        raise DataError(f"{path}: record 1, at byte 0", problem, WANTED, "copy it again")
    if head:
        raise DataError(f"{path}: record 1, at byte 0", "the checksum of its length differs", WANTED, "copy it again")
    return file


def _more(source: IO[bytes], least: int, path: Path) -> bytes:
    """Read at least `least` bytes, so that a long record is joined only once; fewer at the end of the file."""
    parts, size = list[bytes](), 0
    try:
        while size < max(least, 1) and (part := source.read(BLOCK)):
            parts.append(part)
            size += len(part)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(path, f"cannot be decompressed: {error}", WANTED, "copy it again") from None
    return b"".join(parts)


class _Inflated:
    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.machine = file, zlib.decompressobj()

    def read(self, size: int) -> bytes:
        out = b""
        while not out and not self.machine.eof:
            raw = self.machine.unconsumed_tail or self.file.read(1 << 20)
            if not raw:
                raise EOFError("the compressed data is truncated")
            out = self.machine.decompress(raw, size)
        return out


def _right(head: bytes) -> bool:
    length, total = struct.unpack("<QI", head)
    return int(masked(crc32c_of_words(np.array([length], np.uint64)))[0]) == total


def _length(buffer: bytes, location: str) -> int:
    """Return the length of a record, or raise an error if it is wrong, before anything of its size is read."""
    if not _right(buffer[:HEAD]):
        raise DataError(location, "the checksum of its length differs", WANTED, "copy the file again")
    length: int = struct.unpack_from("<Q", buffer)[0]
    if length > LONGEST:
        raise DataError(location, f"claims {length:,} bytes", f"at most {LONGEST:,}")
    return length


def _starts(buffer: bytes) -> list[int]:
    starts, at, end, unpack = [], 0, len(buffer), struct.Struct("<Q").unpack_from
    while at + HEAD <= end:
        (length,) = unpack(buffer, at)
        at += HEAD + length + TAIL
        if at > end:
            break
        starts.append(at - length - TAIL)
    return starts


def _checked(path: Path, buffer: bytes, starts: list[int], first: int, at: int) -> RecordBlock:
    """Return the records as a block, or raise an error if a checksum is wrong."""
    data = np.frombuffer(buffer, np.uint8)
    begins = np.array(starts, np.int64)
    heads = data[begins[:, None] + np.arange(-HEAD, 0)]
    lengths = heads[:, :8].copy().view("<u8")[:, 0]
    block = RecordBlock(path, buffer, begins, lengths.astype(np.int64), first, at)
    wrong = masked(crc32c_of_words(lengths)) != heads[:, 8:].copy().view("<u4")[:, 0]
    ends = begins + block.lengths
    sums = data[ends[:, None] + np.arange(TAIL)].copy().view("<u4")[:, 0]
    whole = masked(crc32c_many(data, begins, block.lengths)) == sums
    for number in np.flatnonzero(wrong | ~whole)[:1]:
        problem = "the checksum of its length differs" if wrong[number] else "its checksum differs"
        raise DataError(block.place(int(number)), problem, WANTED, "copy the file again")
    return block
