"""Read tables of examples: columns of a TSV, CSV, JSON or Parquet file, by name or number, each row with its line
number.

    "dev.tsv.xz", {"text": "sentence", "label": 2}  ->  Table(lines=[2, 3], columns={"text": [...], "label": [...]})

A value is text as written in the file. In TSV a quote is an ordinary character. CSV has quotes, and its columns are
separated by commas, or by semicolons if the first line contains no comma. Rows with too few or too many columns are
left out and reported; a file with many of them is refused. A row whose text is empty is kept, because it needs a
prediction too, and reported.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.say import many, say, with_article
from ordsmed.text import read

if TYPE_CHECKING:
    from _csv import Reader

    from pyarrow import Array as ArrowArray
    from pyarrow.parquet import ParquetFile

Format = Literal["tsv", "csv", "jsonl", "json", "parquet"]
Column = str | int  # its name, or its number from 1
ENDINGS: dict[str, Format] = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
}
PACKED = (".gz", ".bz2", ".xz", ".zst")
LONGEST = 1 << 28  # characters of one line
LONGEST_FIELD = 1 << 24  # characters between two quotes of CSV
BROKEN = 0.05  # largest share of rows that may be left out
FEW = 2  # up to this many records that span several lines count as mistakes, even in a short file


class NoColumn(DataError):
    """A column does not exist."""


@dataclass(frozen=True)
class Table:
    """Columns of a file by role, all of the same length."""

    path: Path
    lines: list[int]  # line at which each row begins; in a JSON list or Parquet the row's number, from 1
    columns: dict[str, list[str]]
    named: Mapping[str, str] = field(default_factory=dict)  # role -> name in the file: `sentence`, column 4

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Return file and line of a row, for error messages."""
        return f"{self.path}:{self.lines[row]}"

    def where(self, role: str, value: str) -> Table:
        rows = [row for row, cell in enumerate(self.columns[role]) if cell == value]
        if not rows:
            existing = sorted(set(self.columns[role]))[:20]
            problem = f"no row whose {self.name(role)} is `{value}`"
            raise DataError(self.path, problem, "one of " + ", ".join(map(_short, existing)))
        return self.only(rows)

    def only(self, rows: Sequence[int]) -> Table:
        columns = {role: [values[row] for row in rows] for role, values in self.columns.items()}
        return Table(self.path, [self.lines[row] for row in rows], columns, self.named)

    def name(self, role: str) -> str:
        return self.named.get(role, f"`{role}`")

    def numbers(self, role: str, within: tuple[float, float] = (-math.inf, math.inf)) -> list[float]:
        """Return a column as numbers. Raise DataError for a value that is not a number `within` the range."""
        return [self._number(row, role, value, within) for row, value in enumerate(self.columns[role])]

    def _number(self, row: int, role: str, value: str, within: tuple[float, float]) -> float:
        with contextlib.suppress(ValueError):
            number = float(value)
            if math.isfinite(number) and within[0] <= number <= within[1]:
                return number
        wanted = "a number" if math.isinf(within[1]) else f"a number from {within[0]:g} to {within[1]:g}"
        raise DataError(self.place(row), f"{self.name(role)} is `{_short(value)}`", wanted)


def table(
    path: Path,
    columns: Mapping[str, Column | tuple[Column, ...]],
    *,
    format: Format | None = None,
    header: bool = True,
    errors: read.Errors = "strict",
    lacking: Collection[str] = (),
    more: bool = False,
) -> Table:
    """Return columns of a file by role. If several names are given for a role, the first that exists is used.

    `header` applies to TSV and CSV; the other formats always have names. Roles in `lacking` may have no column. With
    `more` rows may have further columns after the last requested one.
    """
    lines: list[int] = []
    rows: list[list[str]] = []
    broken: list[_Row] = []
    request = _Request(path, columns, lacking, header, more, errors)
    with read.replacements_told(path):
        for row in _READERS[kind_of(path, format)](request):
            if row.wrong:
                broken.append(row)
            else:
                lines.append(row.line)
                rows.append([v if isinstance(v, str) else _written(v, f"{path}:{row.line}") for v in row.values])
    _refuse_broken(path, broken, len(broken) + len(lines))
    if not lines:
        raise DataError(path, "no rows", "at least one")
    whole = Table(path, lines, dict(zip(request.named, map(list, zip(*rows, strict=True)), strict=True)), request.named)
    for role, cells in whole.columns.items():
        if empty := [number for number, cell in enumerate(cells) if not cell.strip()]:
            count = f"in {len(empty):,} of {many(len(whole), 'row')}"
            say(f"{whole.place(empty[0])}: {whole.name(role)} is empty, {count}; they are kept")
    return whole


def records(
    path: Path, *, format: Format | None = None, header: bool = True, errors: read.Errors = "strict"
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and all columns of every row, by name, or by number if there are no names."""
    kind = kind_of(path, format)
    if kind in ("jsonl", "json"):
        values = (_json_values if kind == "json" else _json_lines_values)(path, errors)
        for number, (line, record) in enumerate(values):
            yield line, _object(path, line, record, first=not number)
        return
    request = _Whole(path, {}, (), header, more=False, errors=errors)
    broken: list[_Row] = []
    good = 0
    with read.replacements_told(path):
        for row in _READERS[kind](request):
            if row.wrong:
                broken.append(row)
            else:
                good += 1
                yield row.line, dict(zip(request.names, row.values, strict=True))
    _refuse_broken(path, broken, good + len(broken))


class _Row(NamedTuple):
    line: int
    values: Sequence[Any]
    wrong: str = ""  # why it has no values


@dataclass
class _Request:
    path: Path
    columns: Mapping[str, Column | tuple[Column, ...]]
    lacking: Collection[str]
    header: bool
    more: bool
    errors: read.Errors
    named: dict[str, str] = field(default_factory=dict)  # the roles found, and the names of their columns

    def positions(self, names: list[str] | None, width: int, remedy: str = "") -> list[int]:
        """Return the indexes of the columns. `names` is None if columns have only numbers."""
        columns = {}
        for role, column in self.columns.items():
            several = column if isinstance(column, tuple) else (column,)
            existing = [c for c in several if (c <= width if isinstance(c, int) else c in (names or ()))]
            if existing or role not in self.lacking:
                columns[role] = _index(self.path, (existing or several)[0], names, width, remedy)
        self.named |= {
            role: f"`{names[at]}`" if names and names[at] else f"column {at + 1}" for role, at in columns.items()
        }
        return list(columns.values())


@dataclass
class _Whole(_Request):
    names: list[str] = field(default_factory=list)

    def positions(self, names: list[str] | None, width: int, remedy: str = "") -> list[int]:
        self.names = names or [str(number) for number in range(1, width + 1)]
        if twice := next((name for name in self.names if self.names.count(name) > 1), None):
            raise DataError(self.path, f"{self.names.count(twice)} columns are called `{twice}`", "each name once")
        return list(range(width))


_Reader = Callable[[_Request], Iterator[_Row]]


def kind_of(path: Path, format: Format | None) -> Format:
    """Return the format of a file: the given one, or by the suffix of its name."""
    name = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = format or ENDINGS.get(name.suffix.lower())
    if kind is None:
        problem = "a name without a known suffix"
        raise RecipeError(path, problem, "one that ends in " + " ".join(ENDINGS), "set `format`")
    return kind


def _refuse_broken(path: Path, broken: list[_Row], total: int) -> None:
    if not broken:
        return
    line, _, wrong = broken[0]
    if len(broken) > BROKEN * total:
        problem = f"{wrong}; {len(broken):,} of {many(total, 'row')} are wrong"
        remedy = "set `format` or `header`, or fix the file"
        raise DataError(f"{path}:{line}", problem, "every row like the first", remedy)
    say(f"{path}: left out {len(broken):,} of {many(total, 'row')}; the first: line {line} has {wrong}")


def _tsv(request: _Request) -> Iterator[_Row]:
    lines = read.lines(request.path, request.errors, longest=LONGEST)
    return _fields(request, ((number, line.split("\t")) for number, line in enumerate(lines, 1)))


def _csv(request: _Request) -> Iterator[_Row]:
    import csv

    lines = read.lines(request.path, request.errors, longest=LONGEST)
    first = next(lines, "")
    comma = ";" if ";" in first and "," not in first else ","  # Excel uses semicolons in countries with decimal commas
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((line + "\n" for line in chain([first], lines)), delimiter=comma, strict=True)
    return _fields(request, _quoted(request.path, reader, comma))


def _quoted(path: Path, reader: Reader, comma: str) -> Iterator[tuple[int, list[str]]]:
    """Yield records and their first lines. A record of several lines with another width has an unclosed quote."""
    import csv

    width, several, rows, strange = 0, 0, 0, []
    while True:
        first_line = reader.line_num + 1
        try:
            fields = next(reader, None)
            if fields is None:
                break
            width = width or len(fields)
            if len(fields) != width and reader.line_num > first_line:
                raise csv.Error
        except csv.Error:
            problem = f"a quoted field does not end as it should (read up to line {reader.line_num})"
            remedy = 'fix the line; for columns separated by tabs, without quoting, set format = "tsv"'
            wanted = 'quotes in pairs, and "" for one inside a field'
            raise DataError(f"{path}:{first_line}", problem, wanted, remedy) from None
        several, rows = several + (reader.line_num > first_line), rows + 1
        if any(_holds_rows(field, position, width, comma) for position, field in enumerate(fields)):
            strange.append((first_line, reader.line_num))
        yield first_line, fields or [""]
    # if many other records span several lines, line ends are part of the texts
    if strange and len(strange) == several and 2 * several <= max(rows, 2 * FEW):
        first, last = strange[0]
        problem = f"{many(len(strange), 'row', 'seems', 'seem')} to contain other rows between two quotes"
        say(f"{path}: {problem}; the first goes from line {first} to {last}: check it for an extra quote")


def _holds_rows(field: str, position: int, width: int, comma: str) -> bool:
    """Return whether a field looks like the end of a row, whole rows and the beginning of a row."""
    first, *inner, last = [line.count(comma) for line in field.split("\n")] if "\n" in field else (-1, -1)
    if '"' in field:  # doubled quotes inside a field: its own quotes are closed correctly
        return False
    return width > 1 and [first, last] == [width - 1 - position, position] and set(inner) <= {width - 1}


def _fields(request: _Request, rows: Iterator[tuple[int, list[str]]]) -> Iterator[_Row]:
    rows = _without_blank_end(rows)
    head = next(rows, (0, []))
    first = head[1]
    if not first:
        return
    names = [name.strip() for name in first] if request.header else None
    indexes = request.positions(names, len(first), "set header = false, and number the columns")
    least = max(indexes, default=0) + 1
    for line, fields in rows if request.header else chain([head], rows):
        if len(fields) == len(first) or (request.more and len(fields) >= least):
            yield _Row(line, [fields[location] for location in indexes])
        else:
            yield _Row(line, (), f"{many(len(fields), 'column')}, not {len(first)}")


def _without_blank_end(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    blank: list[tuple[int, list[str]]] = []
    for row in rows:
        blank.append(row)
        if row[1] != [""]:
            yield from blank
            blank = []


def _json_lines(request: _Request) -> Iterator[_Row]:
    return _objects(request, _json_lines_values(request.path, request.errors))


def _json(request: _Request) -> Iterator[_Row]:
    return _objects(request, _json_values(request.path, request.errors))


def _json_lines_values(path: Path, errors: read.Errors) -> Iterator[tuple[int, Any]]:
    return _decoded(path, read.lines(path, errors, longest=LONGEST))


def _json_values(path: Path, errors: read.Errors) -> Iterator[tuple[int, Any]]:
    text = "".join(read.texts(path, errors))
    if not text.lstrip().startswith("["):
        return _decoded(path, text.split("\n"))
    return iter(enumerate(cast(list[object], _decode(text, str(path))), 1))


def _decoded(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, 1):
        if line and not line.isspace():
            yield number, _decode(line, f"{path}:{number}")


def _decode(text: str, location: str) -> object:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        reason = re.sub("^[A-Z](?![A-Z])", lambda first: first[0].lower(), str(error))
        raise DataError(
            location, f"bad JSON: {reason}", "one object per line, or a list of objects", "fix it"
        ) from None


def _objects(request: _Request, numbered: Iterator[tuple[int, Any]]) -> Iterator[_Row]:
    keys: list[str] = []
    for number, record in numbered:
        record = _object(request.path, number, record, first=not keys)
        if not keys:
            names = list(record)
            keys = [names[location] for location in request.positions(names, len(names))]
        missing = next((key for key in keys if key not in record), None)
        if missing is None:
            yield _Row(number, [record[key] for key in keys])
        else:
            yield _Row(number, (), f"no `{missing}`")


def _object(path: Path, number: int, record: object, *, first: bool) -> dict[str, Any]:
    if not isinstance(record, dict):
        problem = f"JSON, but {with_article(type(record).__name__)}"
        raise DataError(f"{path}:{number}", problem, "an object {...}")
    if first and isinstance(record.get("data"), list):
        problem = "an object with a list under `data`, as SQuAD's questions"
        raise DataError(f"{path}:{number}", problem, "one object per row")
    return record


def _parquet(request: _Request) -> Iterator[_Row]:
    path, errors = request.path, request.errors
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        chosen = [names[location] for location in request.positions(names, len(names))]
        rows_before = 0
        for batch in file.iter_batches(columns=list(dict.fromkeys(chosen)), use_threads=False):
            cells = [_cells(batch.column(name), path, rows_before, errors) for name in chosen]
            yield from (_Row(number, row) for number, row in enumerate(zip(*cells, strict=True), rows_before + 1))
            rows_before += batch.num_rows
    read.tally().bytes += path.stat().st_size


_READERS: dict[Format, _Reader] = dict(tsv=_tsv, csv=_csv, jsonl=_json_lines, json=_json, parquet=_parquet)


@contextlib.contextmanager
def open_parquet(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file, and turn exceptions while it is read into DataError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RecipeError(path, "`pyarrow` is not installed", "", "pip install 'ordsmed[parquet]'") from None
    try:
        # buffered: columns are read in small parts, because whole row groups may not fit into memory
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file
    except FileNotFoundError:
        raise DataError(path, "no such file") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DataError(path, f"cannot be read: {reason}", "a whole Parquet file", "copy it again") from None


def _cells(column: ArrowArray, path: Path, rows_before: int, errors: read.Errors) -> list[Any]:
    """Return the values of a column. Decode its bytes as text, because Parquet files may contain invalid UTF-8."""
    import pyarrow

    kind = column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type
    column = column.cast(kind)
    if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()):
        return column.to_pylist()
    raw = enumerate(column.cast(pyarrow.large_binary()).to_pylist(), rows_before + 1)
    return [read.decoded(data or b"", ["utf-8"], errors, f"{path}:{number}")[0] for number, data in raw]


def _index(path: Path, column: Column, names: list[str] | None, width: int, remedy: str = "") -> int:
    """Return the index of a column. `names` is None if columns have only numbers."""
    if isinstance(column, int):
        if 1 <= column <= width:
            return column - 1
        raise NoColumn(path, f"no column {column}", f"a number from 1 to {width}")
    if names is None:
        raise RecipeError(path, f"column `{column}` of a file without a header", f"a number from 1 to {width}")
    if names.count(column) > 1:
        raise DataError(path, f"{names.count(column)} columns are called `{column}`", "the number of one, from 1")
    if column not in names:
        existing = "one of " + ", ".join(map(_short, names[:20]))
        raise NoColumn(path, f"no column `{column}`", existing, meant(column, names) or remedy)
    return names.index(column)


def _written(value: object, location: str) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, list | dict | bytes):
        problem = f"{with_article(type(value).__name__)} in a column"
        raise DataError(location, problem, "text or a number", "choose another column")
    return str(value)


def _short(value: str) -> str:
    return value if len(value) <= 30 else value[:29] + "…"
