"""What a probe offers: files -> examples, each some items to be scored -> a record each -> what was found, with errors.

What a probe has of its own is small: what it reads of a file, what it keeps of scores, what it makes of all records.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.text import read
from ordsmed.text.labelled.tables import open_parquet

Record = list[Any]  # numbers and short words, as JSON has them
TOGETHER = 512  # texts that are cut at once
DRAWS = 1_000  # of a bootstrap


@dataclass(frozen=True)
class Example:
    """Items whose scores are looked at together."""

    items: tuple[Item, ...]
    about: Record = field(default_factory=list)  # what its record begins with


@dataclass(frozen=True)
class PairedExample:
    """An example as two models are compared by it."""

    key: str  # the same of every model
    group: str  # of examples of one kind, which are right and wrong together; "": it stands by itself
    values: dict[str, float]  # scores by their names: those of all examples have the mean, or the share, as their score
    weight: float = 1.0  # of how much the values are sums


@dataclass(frozen=True)
class Finding:
    """What a probe found."""

    facts: dict[str, Any]
    errors: dict[str, float] = field(default_factory=dict)  # standard errors, by the names of facts
    guessing: dict[str, float] = field(default_factory=dict)  # what who knows nothing gets
    tables: list[tuple[str, list[str], list[list[Any]]]] = field(default_factory=list)
    how: str = ""  # how it was done, in a line

    def plain(self) -> dict[str, Any]:
        return {**self.facts, "errors": self.errors, "guessing": self.guessing}


class Probe(Protocol):
    """What every file in probes/ offers: its settings, frozen."""

    way: str  # in which the model is read; "": its usual one
    files: tuple[str, ...]  # what is read, and patterns of such
    best: ClassVar[bool]  # does it ask which tokens are the likeliest?
    prefers: ClassVar[tuple[str, ...]]  # ways that suit it, before a model's usual one

    def fits(self, scorer: Scorer, place: str) -> str:
        """How texts are cut, in a line, or nothing; a complaint where the model cannot be asked."""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        """What is asked, in an order that does not change."""

    def record(self, example: Example, scores: list[Scores]) -> Record:
        """What is kept of an example."""

    def finding(self, records: list[Record]) -> Finding:
        """What all of them say."""

    def as_line(self, record: Record) -> dict[str, Any]:
        """A record as --each writes it."""

    def compared(self, records: list[Record]) -> list[PairedExample]:
        """What two models are compared by, example by example."""


def paths_of(files: Sequence[str]) -> list[Path]:
    """The files that names, folders and patterns mean."""
    return read.files(list(files))


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with its place: objects of JSON, CSV and .tsv with a head, Parquet."""
    reader = next((reader for ending, reader in _READERS.items() if ending in path.suffixes), _json)
    for number, row in reader(path):
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}", f"found {type(row).__name__}", "a JSON object a line")
        yield f"{path}:{number}", row


def _json(path: Path) -> Iterator[tuple[int, Any]]:
    """An object a line, or a list of objects."""
    lines = ((number, line) for number, line in enumerate(read.lines(path), 1) if line.strip())
    first = next(lines, None)
    if first is None:
        raise DataError(path, "is empty", "a JSON object a line")
    if first[1].strip() == "[" or first[1].lstrip().startswith("[{"):
        rows = _decoded("".join(read.texts(path)), str(path))
        yield from enumerate(rows if isinstance(rows, list) else [rows], 1)
        return
    for number, line in chain([first], lines):
        yield number, _decoded(line, f"{path}:{number}")


def _decoded(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(place, f"not JSON: {error}", "a JSON object a line") from None


def _tabs(path: Path) -> Iterator[tuple[int, Any]]:
    lines = ((number, line.split("\t")) for number, line in enumerate(read.lines(path), 1) if line.strip())
    return _cells(path, lines)


def _commas(path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.reader((f"{line}\n" for line in read.lines(path)), strict=True)
    try:
        yield from _cells(path, ((reader.line_num, cells) for cells in reader if cells))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}", f"no CSV: {error}", "quotes in pairs") from None


def _cells(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, Any]]:
    _, head = next(rows, (0, []))
    if not head:
        raise DataError(path, "is empty", "a line that names the columns, and rows")
    for number, cells in rows:
        if len(cells) != len(head):
            raise DataError(f"{path}:{number}", f"found {len(cells)} columns", f"{len(head)}, as in the first line")
        yield number, dict(zip(head, cells, strict=True))


def _parquet(path: Path) -> Iterator[tuple[int, Any]]:
    with open_parquet(path) as file:
        yield from enumerate((row for batch in file.iter_batches() for row in batch.to_pylist()), 1)


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    ".tsv": _tabs,
    ".csv": _commas,
    ".parquet": _parquet,
}


def text_of(result: dict[str, Any], key: str, place: str) -> str:
    """A text of a record, which must be one, and not an empty one."""
    if key not in result:
        keys = ", ".join(list(result)[:8]) or "none"
        raise DataError(place, f"has no key `{key}` (keys: {keys})", f"`{key}`, a text")
    if not isinstance(result[key], str) or not result[key].strip():
        raise DataError(place, f"`{key}` is {'empty' if isinstance(result[key], str) else 'no text'}", "a text")
    valid(result[key], place)
    return str(result[key])


def valid(text: str, place: str) -> None:
    """Refuse half of a surrogate pair, which JSON may hold and UTF-8 may not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(place, f"invalid UTF-8 at character {error.start + 1}", "UTF-8 text") from None


def fits(scorer: Scorer, item: Item, place: str, text: str) -> None:
    """Refuse what has no token, or more than the model can read at once."""
    short = repr(text if len(text) <= 40 else text[:37] + "...")
    if item.asked < 1:
        raise DataError(place, f"{short} has no token that can be scored", "a longer text")
    if len(item) > (room := room_of(scorer, sign=item.sign)):
        result = f"{short} has {len(item):,} tokens"
        raise DataError(place, result, f"at most {room:,}, the model's window", "shorten it, or leave it out")


def room_of(scorer: Scorer, *, sign: bool) -> int:
    """As many tokens as can be read of a text, behind the sign that texts begin with or without it."""
    return scorer.room + (len(scorer.lead) if scorer.lead is not None and not sign else 0)


def share(right: float, count: int) -> tuple[float, float]:
    """Per cent, and its standard error, of examples that stand by themselves."""
    p = right / count
    return 100 * p, 100 * math.sqrt(p * (1 - p) / count)


def ratio_error(sums: Sequence[float], counts: Sequence[float], seed: int = 0) -> float:
    """The standard error of sum / count over all records, from records drawn again and again, with a seed."""
    numerators, denominators = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    if len(sums) < 2:
        return math.nan
    chance = np.random.default_rng(seed)
    drawn: NDArray[np.float64] = np.empty(DRAWS)
    for n in range(DRAWS):
        which = chance.integers(len(sums), size=len(sums))
        drawn[n] = numerators[which].sum() / denominators[which].sum()
    return float(drawn.std(ddof=1))


def perplexity(loss: float) -> float:
    """e to the loss; without end where that is more than a number can be."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
