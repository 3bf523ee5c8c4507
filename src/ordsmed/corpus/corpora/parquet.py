"""Parquet and Arrow files: one row per document, the text in a column; the other columns become metadata.

    {"text": "One. Two.", "date": 2020-01-31}  ->  Document("One. Two.", id="a.parquet:1", meta={"date": "2020-01-31"})

Only a few megabytes of rows are unpacked at a time. A large file is read in pieces, whose start and stop are numbers of
row groups, not bytes. Arrow files are found in folders of Hugging Face's `save_to_disk`, and in its cache. Dates become
ISO 8601 text, decimals text, bytes base64.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.text import read
from ordsmed.text.document import Document
from ordsmed.text.labelled.tables import open_parquet
from ordsmed.text.source import FileSource, Piece

if TYPE_CHECKING:
    from pyarrow import Array as ArrowArray
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

PART = 256 << 20  # bytes of a piece of a file
SLICE = 4096  # rows of an Arrow file at a time
BATCH = 16 << 20  # bytes of rows unpacked at a time


@dataclass(frozen=True)
class Parquet(FileSource, Choice):
    """Documents of Parquet and Arrow files."""

    text_key: str = "text"
    "the text column"
    id_key: str | None = None
    "the column of the document's id; default: file and row"
    keep: list[str] | None = None
    "columns kept as metadata; default: all"
    errors: read.Errors = "strict"
    "invalid UTF-8: stop with an error that names the byte (strict), or write U+FFFD for it and count it (replace)"

    def pieces(self) -> list[Piece]:
        return [piece for path in read.files(self.path) for piece in _pieces(path)]

    def read(self, piece: Piece) -> Iterator[Document]:
        counted, size = read.tally(), piece.path.stat().st_size
        if _is_arrow(piece.path):
            yield from self._arrow(piece.path)
            counted.bytes += size
            return
        if not _is_parquet(piece.path):
            counted.left_out["files other than Parquet and Arrow"] += 1
            counted.bytes += size
            return
        with open_parquet(piece.path) as file:
            columns = self._columns(piece.path, file.schema_arrow.names)
            rows = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            row, whole = sum(rows[: piece.start]), max(sum(rows), 1)
            chosen = range(piece.start, len(rows) if piece.stop is None else piece.stop)
            for batch in file.iter_batches(_batch(file), row_groups=chosen, columns=columns, use_threads=False):
                counted.bytes += size * (row + batch.num_rows) // whole - size * row // whole
                yield from self._documents(batch, piece.path, row)
                row += batch.num_rows

    def _arrow(self, path: Path) -> Iterator[Document]:
        row = 0
        with _batches(path) as batches:
            for batch in batches:
                for first in range(0, batch.num_rows, SLICE):
                    part = batch.slice(first, SLICE)
                    yield from self._documents(part.select(self._columns(path, part.schema.names)), path, row)
                    row += part.num_rows

    def _columns(self, path: Path, there: list[str]) -> list[str]:
        wanted = [self.text_key, *([self.id_key] if self.id_key else []), *(there if self.keep is None else self.keep)]
        for name in wanted:
            if name not in there:
                problem = f"no column `{name}`"
                raise DataError(path, problem, "one of " + ", ".join(there[:20]), "set `text_key`, `id_key` or `keep`")
        return list(dict.fromkeys(wanted))

    def _documents(self, batch: RecordBatch, path: Path, rows_before: int) -> Iterator[Document]:
        texts = _texts(batch.column(self.text_key), path, self.text_key)
        names = [name for name in batch.schema.names if name != self.text_key]
        kept = {name: _values(batch.column(name), f"{path}: column `{name}`") for name in names}
        for number, (raw, *values) in enumerate(zip(texts, *kept.values(), strict=True), rows_before + 1):
            if not raw:
                read.tally().left_out["empty"] += 1
                continue
            meta = dict(zip(kept, values, strict=True))
            name = meta.pop(self.id_key, None) if self.id_key else None
            location = f"{path}:{number}"
            yield Document(self._decode(raw, location), id=location if name is None else str(name), meta=meta)

    def _decode(self, raw: bytes, location: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if self.errors == "strict":
                problem = f"invalid UTF-8 at byte {error.start:,} of the text"
                raise DataError(location, problem, "text in UTF-8", 'fix it, or set errors = "replace"') from None
        text = raw.decode(errors="replace")
        read.tally().replaced += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
        return text


def _is_parquet(path: Path) -> bool:
    """Check the name or the first bytes. A broken file named .parquet must raise an error, so its name is enough."""
    with path.open("rb") as file:
        return path.suffix.lower() == ".parquet" or file.read(4) == b"PAR1"


def _is_arrow(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix.lower() == ".arrow" or file.read(6) == b"ARROW1"


@contextlib.contextmanager
def _batches(path: Path) -> Iterator[Any]:
    pyarrow = _pyarrow()
    try:
        with pyarrow.memory_map(str(path)) as mapped:
            if mapped.read(6) == b"ARROW1":
                file = pyarrow.ipc.open_file(mapped)
                yield (file.get_batch(number) for number in range(file.num_record_batches))
            else:
                mapped.seek(0)
                yield pyarrow.ipc.open_stream(mapped)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(path, f"cannot be read: {_line(error)}", "a whole Arrow file", "copy it again") from None


def _line(error: Exception) -> str:
    return str(error).split("\n")[0].rstrip(".")


def _pyarrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise RecipeError("parquet", "`pyarrow` is not installed", "", "pip install 'ordsmed[parquet]'") from None
    return pyarrow


def _pieces(path: Path) -> list[Piece]:
    parts = path.stat().st_size // PART
    if parts < 2 or not _is_parquet(path):
        return [Piece(path)]
    with open_parquet(path) as file:
        groups = file.num_row_groups
    bounds = sorted({groups * n // parts for n in range(parts + 1)})
    share = path.stat().st_size // max(groups, 1)
    return [Piece(path, start, stop, (stop - start) * share) for start, stop in pairwise(bounds)] or [Piece(path)]


def _batch(file: ParquetFile) -> int:
    unpacked = sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups))
    return max(1, min(4096, BATCH * file.metadata.num_rows // max(unpacked, 1)))


def _texts(column: ArrowArray, path: Path, name: str) -> list[bytes | None]:
    """Return a column of text as bytes, because nothing checks that Parquet's text is UTF-8."""
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()):
        raise DataError(path, f"column `{name}` holds {kind}", "text", "set `text_key`")
    return column.cast(kind).cast(pyarrow.large_binary()).to_pylist()


def _values(column: ArrowArray, location: str) -> list[Any]:
    import msgspec
    import pyarrow
    import pyarrow.compute

    if pyarrow.types.is_temporal(column.type) and not pyarrow.types.is_duration(column.type):
        # not via Python's types, which have no nanoseconds and no year 10000
        column = pyarrow.compute.replace_substring(column.cast(pyarrow.string()), " ", "T", max_replacements=1)
    try:
        return msgspec.to_builtins(column.to_pylist())
    except (ValueError, OverflowError, TypeError) as error:
        raise DataError(location, f"cannot be kept: {_line(error)}", "", "list the columns to keep in `keep`") from None
