"""TensorFlow's checkpoints: named tensors, with a table in NAME.index and data in NAME.data-00000-of-00001 and so on.

The table's empty key has the number of data files. Every other key is the name of a tensor, with its type, shape, file,
offset, size and checksum. A partitioned variable has the extents of its parts, and each part has an entry under a key
that begins with a zero byte. Tensors are read on request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ordsmed.base import files
from ordsmed.base.binary import proto, sstable
from ordsmed.base.binary.crc32c import crc32c, masked
from ordsmed.base.binary.proto import Torn
from ordsmed.base.errors import DataError, RecipeError

TYPES = {  # TensorFlow's type codes
    1: torch.float32,
    2: torch.float64,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    10: torch.bool,
    14: torch.bfloat16,
    19: torch.float16,
}
Extent = tuple[tuple[int, int], ...]  # begin and length of a part along each axis; length -1: the whole axis
TEXT = 7  # strings, in which TensorFlow 2 saves its object graph
WHOLE = "the files NAME.index and NAME.data-* of one save"
STATE = "checkpoint"  # a text file next to checkpoints that names the newest


@dataclass(frozen=True)
class Entry:
    dtype: torch.dtype
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    extents: tuple[Extent, ...] = ()  # of its parts, if it is partitioned
    parts: tuple[Entry, ...] = ()


class Bundle:
    """The tensors of a checkpoint. Each is read and checked on request."""

    def __init__(self, prefix: Path) -> None:
        self.prefix, self.index = prefix, prefix.with_name(prefix.name + ".index")
        table = sstable.read(self.index)
        try:
            shards = _header(memoryview(table.pop(b"", b"")), self.index)
            entries = {key.decode(): _entry(memoryview(value)) for key, value in table.items() if key[0]}
            for name, entry in entries.items():
                if entry and entry.extents:
                    parts = [_entry(memoryview(table[_key(name, extent)])) for extent in entry.extents]
                    entries[name] = replace(entry, parts=tuple(part for part in parts if part))
        except KeyError:
            raise DataError(self.index, f"is damaged: parts of {name} are missing", WHOLE, "fetch it again") from None
        except (Torn, UnicodeDecodeError, TypeError) as error:
            raise DataError(self.index, f"is damaged: {error}", WHOLE, "fetch it again") from None
        self.entries = {name: entry for name, entry in entries.items() if entry}
        self.shards = [prefix.with_name(f"{prefix.name}.data-{n:05}-of-{shards:05}") for n in range(shards)]
        if absent := [path for path in self.shards if not path.is_file()]:
            raise DataError(absent[0], "no such file", WHOLE, "fetch it as well")
        for name, entry in self.entries.items():
            self._check(name, entry)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: entry.shape for name, entry in self.entries.items()}

    def read(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.extents:
            whole = torch.empty(entry.shape, dtype=entry.dtype)
            for extent, part in zip(entry.extents, entry.parts, strict=True):
                whole[_within(extent, entry.shape)] = self._read(name, part)
            return whole
        return self._read(name, entry)

    def _read(self, name: str, entry: Entry) -> Tensor:
        path, raw = self.shards[entry.shard], np.empty(entry.size, np.uint8)
        with path.open("rb") as file:
            file.seek(entry.offset)
            read = file.readinto(raw.data)
        if read != entry.size or int(masked(crc32c(raw))) != entry.crc:
            wrong = f"is damaged: the checksum of {name}, at byte {entry.offset:,}, differs"
            raise DataError(path, wrong, WHOLE, "fetch it again")
        if not entry.size:
            return torch.empty(entry.shape, dtype=entry.dtype)
        return torch.from_numpy(raw).view(entry.dtype).reshape(entry.shape)

    def _check(self, name: str, entry: Entry) -> None:
        """Raise an error if an entry is impossible, before anything of its size is allocated."""
        if entry.extents:
            shapes = [_cut(extent, entry.shape) for extent in entry.extents]
            covered = sum(int(np.prod(shape, dtype=object)) for shape in shapes)
            parts = [(part.shape, part.dtype) for part in entry.parts]
            if parts != [(s, entry.dtype) for s in shapes] or covered != int(np.prod(entry.shape, dtype=object)):
                wrong = f"is damaged: the parts of {name} {list(entry.shape)} do not form the whole"
                raise DataError(self.index, wrong, WHOLE, "fetch it again")
            for part in entry.parts:
                self._check(name, part)
            return
        numbers = int(np.prod(entry.shape, dtype=object))
        if entry.shard >= len(self.shards) or numbers * entry.dtype.itemsize != entry.size:
            raise DataError(self.index, f"is damaged: {name} {list(entry.shape)} has {entry.size:,} bytes", WHOLE)
        path = self.shards[entry.shard]
        size = path.stat().st_size
        if entry.offset + entry.size > size:
            wrong = f"is truncated: {size:,} bytes, but {name} ends at {entry.offset + entry.size:,}"
            raise DataError(path, wrong, WHOLE, "fetch it again")


def find(path: Path) -> Path | None:
    """Return the prefix of the checkpoint in a folder or of a file, or None."""
    if path.is_dir():
        names = sorted(p.name.removesuffix(".index") for p in path.glob("*.index"))
        if len(names) < 2:
            return path / names[0] if names else None
        newest = _newest(path)
        if newest in names:
            return path / newest
        remedy = f"name one: {path / names[-1]}.index"
        raise RecipeError(path, f"has {' and '.join(names[:4])}", "one checkpoint", remedy)
    name = path.name.removesuffix(".index")
    name = name.partition(".data-")[0] if ".data-" in name else name.removesuffix(".meta")
    return path.with_name(name) if path.with_name(f"{name}.index").is_file() else None


def names(prefix: Path) -> frozenset[str]:
    """Return the names of a checkpoint's tensors; none if its index is damaged, which opening it reports."""
    with contextlib.suppress(DataError, UnicodeDecodeError):
        keys = sstable.read(prefix.with_name(f"{prefix.name}.index"))
        return frozenset(key.decode() for key in keys if not key.startswith(b"\0"))
    return frozenset()


def opened(path: Path) -> Bundle:
    prefix = find(path)
    if prefix is None:
        raise DataError(path, "has no TensorFlow checkpoint", WHOLE)
    return Bundle(prefix)


def refuse_first_version(path: Path) -> None:
    """Raise an error for a checkpoint of TensorFlow's first format (before 2017), a table without index."""
    files_here = sorted(path.iterdir()) if path.is_dir() else [path]
    checkpoints = (p for p in files_here if p.is_file() and ".ckpt" in p.name and p.suffix not in (".index", ".meta"))
    if old := next((p for p in checkpoints if ".data-" not in p.name and sstable.is_table(p)), None):
        remedy = "load it with TensorFlow 1 and save it by tf.train.Saver(write_version=tf.train.SaverDef.V2)"
        raise DataError(old, "is a checkpoint of TensorFlow's first format", WHOLE, remedy)


def write(prefix: Path, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Write a checkpoint, tensor by tensor."""
    data = prefix.with_name(f"{prefix.name}.data-00000-of-00001")
    codes = {dtype: code for code, dtype in TYPES.items()}
    entries: dict[bytes, bytes] = {}
    offset = 0
    with files.survive_disk(data):
        with data.open("wb") as file:
            for name, tensor in tensors:
                raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
                shape = b"".join(proto.run(2, proto.message({1: size})) for size in tensor.shape)
                entry: dict[int, int | bytes] = {1: codes[tensor.dtype], 2: shape, 4: offset, 5: len(raw)}
                entry[6] = int(masked(crc32c(raw)))
                entries[name.encode()] = proto.message(entry, fixed=(6,))
                file.write(raw.data)
                offset += len(raw)
        files.sync(data)
    entries[b""] = proto.message({1: 1, 3: proto.message({1: 1})})
    index = prefix.with_name(f"{prefix.name}.index")
    with files.survive_disk(index):
        index.write_bytes(sstable.write(entries))
        files.sync(index)
    state = f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "{prefix.name}"\n'
    files.write_text(prefix.with_name(STATE), state)


def _newest(folder: Path) -> str:
    """Return the newest checkpoint's name from the text file next to it, or an empty string."""
    try:
        lines = (folder / STATE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    paths = (line.partition(":")[2].strip().strip('"') for line in lines if line.startswith("model_checkpoint_path:"))
    return Path(next(paths, "")).name


def _header(value: memoryview, index: Path) -> int:
    table = proto.table(value)
    if table.get(2):
        remedy = "load and save it on a little-endian machine"
        raise DataError(index, "was written on a big-endian machine", "little-endian numbers", remedy)
    shards = table.get(1, 0)
    if not isinstance(shards, int) or not 1 <= shards < 100_000:
        raise Torn("it has no number of files")
    return shards


def _entry(value: memoryview) -> Entry | None:
    """Decode a tensor's entry; None for strings, which are not weights."""
    table: dict[int, proto.Value] = {1: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    sizes: list[int] = []
    extents: list[Extent] = []
    for field, inner in proto.fields(value):
        if field == 7 and isinstance(inner, memoryview):
            extents.append(tuple(_extent(axis) for _, axis in proto.fields(inner) if isinstance(axis, memoryview)))
        elif field == 2 and isinstance(inner, memoryview):
            sizes = [_size(dim) for number, dim in proto.fields(inner) if number == 2 and isinstance(dim, memoryview)]
        else:
            table[field] = inner
    code, shard, offset, size, crc = (table[n] for n in (1, 3, 4, 5, 6))
    if not all(isinstance(n, int) for n in (code, shard, offset, size, crc)) or min(sizes, default=0) < 0:
        raise Torn("an entry has invalid fields")
    if code == TEXT:
        return None
    if code not in TYPES:
        raise Torn(f"unknown type {code}")
    if any(len(extent) != len(sizes) for extent in extents):
        raise Torn("parts have other axes than the whole")
    return Entry(TYPES[code], tuple(sizes), shard, offset, size, crc, tuple(extents))  # type: ignore[arg-type]


def _extent(axis: memoryview) -> tuple[int, int]:
    table = proto.table(axis)
    start, length = table.get(1, 0), table.get(2, -1)
    if not isinstance(start, int) or not isinstance(length, int):
        raise Torn("a part has invalid fields")
    return proto.signed(start), length


def _within(extent: Extent, shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(at, at + n) if n >= 0 else slice(0, size) for (at, n), size in zip(extent, shape, strict=True))


def _cut(extent: Extent, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(len(range(size)[part]) for part, size in zip(_within(extent, shape), shape, strict=True))


def _key(name: str, extent: Extent) -> bytes:
    """Return the key of a part, whose bytes sort like the values in it (TensorFlow's OrderedCode)."""
    text = name.encode().replace(b"\0", b"\0\xff").replace(b"\xff", b"\xff\0")
    axes = bytes([1, len(extent)]) if extent else b"\0"
    return b"\0" + text + b"\0\1" + axes + b"".join(_ordered(number) for pair in extent for number in pair)


def _ordered(value: int) -> bytes:
    """Encode a signed number in as few bytes as needed, with their number in unary in front."""
    size = (~value if value < 0 else value).bit_length() // 7 + 1
    ones = (0xFFFF << (16 - size) & 0xFFFF).to_bytes(2, "big").ljust(size, b"\0")
    return bytes(byte ^ mark for byte, mark in zip(value.to_bytes(size, "big", signed=True), ones, strict=False))


def _size(dim: memoryview) -> int:
    value = proto.table(dim).get(1, 0)
    return proto.signed(value) if isinstance(value, int) else -1
