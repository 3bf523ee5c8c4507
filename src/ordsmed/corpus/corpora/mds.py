"""MDS: shards of Mosaic's streaming datasets; one sample per document, its other columns become metadata.

    index.json        the shards, their columns and the encodings of these
    shard.00000.mds   their number (4 bytes) | offset of each, and the end (4 each) | samples: column sizes, columns

Shards packed with zstd, gzip and bz2 are unpacked while they are read.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.source import FileSource, Piece

INDEX = "index.json"
WHOLE = "a complete dataset of Mosaic: index.json and its shards"
NUMBERS = {
    "int": "<q",
    "int64": "<q",
    "int32": "<i",
    "uint32": "<I",
    "uint64": "<Q",
    "int16": "<h",
    "int8": "<b",
    "uint8": "<B",
    "uint16": "<H",
    "float64": "<d",
    "float32": "<f",
}
READ = {**dict.fromkeys(NUMBERS), "str": None, "json": None, "str_int": None, "str_float": None}


@dataclass(frozen=True)
class Mds(FileSource, Choice):
    """Documents of folders with MDS shards."""

    text_key: str = "text"
    "the text column"
    id_key: str | None = None
    "the column of the document's id; default: shard and sample"

    def pieces(self) -> list[Piece]:
        indexes = [path for path in read.files(self.path) if path.name == INDEX]
        if not indexes:
            raise DataError(self.path, f"contains no {INDEX}", WHOLE)
        return [Piece(index.parent / name) for index in indexes for name in _shards(index)]

    def read(self, piece: Piece) -> Iterator[Document]:
        shard = _shards(piece.path.parent / INDEX)[piece.path.name]
        columns = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
        if columns.get(self.text_key) != "str":
            columns_there = ", ".join(f"{name} ({kind})" for name, kind in columns.items())
            problem = f"has no text in `{self.text_key}`"
            raise DataError(piece.path, problem, f"one of {columns_there}", "set `text_key`")
        for number, row in enumerate(_samples(_unpacked(piece.path), shard, piece.path), 1):
            text, location = row.pop(self.text_key), f"{piece.path}:{number}"
            if not text:
                read.tally().left_out["empty"] += 1
                continue
            name = row.pop(self.id_key, None) if self.id_key else None
            yield Document(text, id=location if name is None else f"{name}", meta=row)


def _shards(index: Path) -> dict[str, Any]:
    table = files.read_table(index)
    known: dict[str, Any] = {}
    for shard in table.get("shards", []):
        try:
            stored = shard["zip_data"] or shard["raw_data"]
            name, kind = Path(stored["basename"]).name, shard["format"]
            _ = [shard[key] for key in ("column_names", "column_encodings", "column_sizes", "samples")]
        except (KeyError, TypeError) as error:
            raise DataError(index, f"a shard without {error}", WHOLE) from None
        if kind != "mds":
            raise DataError(index, f"{name} is of the format {kind}", "mds")
        if not (index.parent / name).is_file():
            raise DataError(index.parent / name, "no such file", f"it, as {INDEX} says", "copy the folder again")
        known[name] = shard
    if not known:
        raise DataError(index, "lists no shard", WHOLE)
    return known


def _unpacked(path: Path) -> bytes:
    if path.suffix != ".zstd":
        return b"".join(read.blocks(path))
    try:
        with path.open("rb") as file:
            data = b"".join(read.zstandard_blocks(file))
    except EOFError:
        raise DataError(path, "is cut off", WHOLE, "copy it again") from None
    except read.broken() as error:
        raise DataError(path, f"cannot be unpacked: {error}", WHOLE, "copy it again") from None
    read.tally().bytes += path.stat().st_size
    return data


def _samples(data: bytes, shard: dict[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    try:
        (count,) = struct.unpack_from("<I", data)
        borders = struct.unpack_from(f"<{count + 1}I", data, 4)
        if borders[-1] != len(data) or list(borders) != sorted(borders) or count != shard["samples"]:
            raise ValueError(f"{len(data):,} bytes of {many(count, 'sample')} that end at {borders[-1]:,}")
        yield from (_columns(data[begin:end], shard) for begin, end in pairwise(borders))
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise DataError(path, f"is damaged: {error}", WHOLE, "copy it again") from None


def _columns(sample: bytes, shard: dict[str, Any]) -> dict[str, Any]:
    loose = sum(size is None for size in shard["column_sizes"])
    sizes = list(struct.unpack_from(f"<{loose}I", sample))
    at, row = 4 * loose, {}
    for name, kind, fixed in zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True):
        size = sizes.pop(0) if fixed is None else fixed
        if at + size > len(sample):
            raise ValueError(f"`{name}` extends beyond its sample")
        if kind in READ:
            row[name] = _value(kind, sample[at : at + size])
        at += size
    return row


def _value(kind: str, raw: bytes) -> object:
    if kind in NUMBERS:
        return struct.unpack(NUMBERS[kind], raw)[0]
    text = raw.decode()
    return json.loads(text) if kind != "str" else text  # numbers as text are JSON, too
