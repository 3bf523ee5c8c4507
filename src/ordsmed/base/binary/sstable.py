"""LevelDB's sorted tables, the format of TensorFlow's index files: keys and values in blocks with checksums.

    block ... | (empty) | index block: last key -> position of each block | footer: positions of both, magic number

A block has entries (number of bytes a key shares with the one before, the rest of the key, the value), some of which
have the full key, then a byte for the compression, and a checksum.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from ordsmed.base.binary.crc32c import crc32c, masked
from ordsmed.base.binary.proto import Torn, number, varint
from ordsmed.base.errors import DataError

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
FOOTER = 48
TRAILER = 5  # bytes after a block: compression and checksum
FULL = 1 << 18  # bytes from which on a new block begins, as in TensorFlow
WHOLE = 16  # every 16th entry has its full key
SNAPPY = 1


def is_table(path: Path) -> bool:
    """Return whether a file ends with the magic number of a table."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - len(MAGIC)))
        return size >= FOOTER and file.read() == MAGIC


def read(path: Path) -> dict[bytes, bytes]:
    data = memoryview(path.read_bytes())
    if len(data) < FOOTER or bytes(data[-len(MAGIC) :]) != MAGIC:
        remedy = "fetch it again: it is truncated, or another kind of file"
        problem = f"{len(data):,} bytes without the end of a table"
        raise DataError(path, problem, "TensorFlow's index of a checkpoint", remedy)
    try:
        footer = data[-FOOTER:]
        at = varint(footer, varint(footer, 0)[1])[1]  # after the position of the metadata block
        table: dict[bytes, bytes] = {}
        for _, handle in _entries(_block(data, *_place(footer[at:]), path)):
            table.update(_entries(_block(data, *_place(memoryview(handle)), path)))
    except (Torn, struct.error, IndexError) as error:
        raise DataError(path, f"is damaged: {error}", "TensorFlow's index of a checkpoint", "fetch it again") from None
    return table


def write(table: Mapping[bytes, bytes]) -> bytes:
    out, index = bytearray(), []
    block: list[tuple[bytes, bytes]] = []
    size = 0

    def close(entries: list[tuple[bytes, bytes]], *, whole: int = WHOLE) -> bytes:
        raw = _packed(entries, whole) + b"\0"
        handle = number(len(out)) + number(len(raw) - 1)
        out.extend(raw + struct.pack("<I", int(masked(crc32c(raw)))))
        return handle

    for key in sorted(table):
        block.append((key, table[key]))
        size += len(key) + len(table[key])
        if size >= FULL:
            index.append((key, close(block)))
            block, size = [], 0
    if block:
        index.append((block[-1][0], close(block)))
    handles = close([]) + close(index, whole=1)
    return bytes(out) + handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def _place(handle: memoryview) -> tuple[int, int]:
    start, at = varint(handle, 0)
    return start, varint(handle, at)[0]


def _block(data: memoryview, start: int, size: int, path: Path) -> memoryview:
    if start + size + TRAILER > len(data) - FOOTER:
        raise Torn(f"a block of {size:,} bytes at {start:,} exceeds the file")
    raw, (wanted,) = data[start : start + size + 1], struct.unpack_from("<I", data, start + size + 1)
    if int(masked(crc32c(raw))) != wanted:
        raise DataError(path, f"is damaged: the checksum of the block at byte {start:,} differs", "", "fetch it again")
    if raw[-1]:
        kind = "snappy" if raw[-1] == SNAPPY else f"kind {raw[-1]}"
        remedy = "load and save it with TensorFlow, which does not compress"
        raise DataError(path, f"its block at byte {start:,} is compressed ({kind})", "uncompressed blocks", remedy)
    (restarts,) = struct.unpack_from("<I", raw, size - 4)
    if 4 * (restarts + 1) > size:
        raise Torn(f"the block at byte {start:,} claims {restarts:,} full keys")
    return raw[: size - 4 * (restarts + 1)]


def _entries(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
    at, key = 0, b""
    while at < len(block):
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size, at = varint(block, at)
        if shared > len(key) or at + unshared + size > len(block):
            raise Torn("an entry exceeds its block")
        key = key[:shared] + bytes(block[at : at + unshared])
        yield key, bytes(block[at + unshared : at + unshared + size])
        at += unshared + size


def _packed(entries: list[tuple[bytes, bytes]], interval: int) -> bytes:
    out, starts, before = bytearray(), [], b""
    for entry_number, (key, value) in enumerate(entries):
        shared = 0
        if entry_number % interval == 0:
            starts.append(len(out))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        out += number(shared) + number(len(key) - shared) + number(len(value)) + key[shared:] + value
        before = key
    starts = starts or [0]
    return bytes(out) + struct.pack(f"<{len(starts) + 1}I", *starts, len(starts))
