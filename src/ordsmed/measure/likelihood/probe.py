"""Interface of a probe: files -> examples, each with items to score -> one record each -> a finding with errors.

A probe defines how files become examples, what to keep of the scores, and how records become a finding.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.text import read
from ordsmed.text.labelled.tables import open_parquet

TOGETHER = 512  # texts that are tokenized at once
DRAWS = 1_000  # bootstrap samples


class Record:
    """Base class of the frozen dataclasses that probes make of an example's scores.

    A record is stored as the JSON array of its fields. A probe names its class in `RECORD`; the records of a
    probe without it are plain lists of JSON values.
    """

    def to_list(self) -> list[Any]:
        return [*vars(self).values()]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Self:
        return cls(*values)


AnyRecord: TypeAlias = Any  # a subclass of Record, or a list


@dataclass(frozen=True)
class Example:
    """Items whose scores make one record."""

    items: tuple[Item, ...]
    about: AnyRecord = field(default_factory=list)  # what `record` of the probe needs in addition to the scores


@dataclass(frozen=True)
class PairedExample:
    """Scores of an example, which a comparison matches by `key` between two models."""

    key: str  # identifies the example in all models
    group: str  # cluster of correlated examples; "": independent
    values: dict[str, float]  # scores by name; the score of the probe is their mean
    weight: float = 1.0  # number of tokens that the values sum over


@dataclass(frozen=True)
class Finding:
    facts: dict[str, Any]
    errors: dict[str, float] = field(default_factory=dict)  # standard errors of facts
    guessing: dict[str, float] = field(default_factory=dict)  # facts of random guessing
    tables: list[tuple[str, list[str], list[list[Any]]]] = field(default_factory=list)  # title, head, rows
    note: str = ""  # note on the method, one line

    def plain(self) -> dict[str, Any]:
        return {**self.facts, "errors": self.errors, "guessing": self.guessing}


class Probe(Protocol):
    """Interface of every file in probes/: a frozen dataclass of settings with these methods."""

    way: str  # how the model is read; "": its default way
    files: tuple[str, ...]  # files to read, or patterns
    best: ClassVar[bool]  # does it need to know which tokens are the likeliest?
    prefers: ClassVar[tuple[str, ...]]  # ways it prefers to a model's default

    def fits(self, scorer: Scorer, location: str) -> str:
        """Return a note on how texts are split, or an empty text; raise an error if the model cannot answer."""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        """Yield the examples, always in the same order."""

    def record(self, example: Example, scores: list[Scores]) -> AnyRecord:
        """Return what to store of an example: a `Record`, or a list of JSON values."""

    def finding(self, records: list[Any]) -> Finding:
        """Summarize all records."""

    def as_line(self, record: AnyRecord) -> dict[str, Any]:
        """Return a record as the dictionary that `--each` writes."""

    def compared(self, records: list[Any]) -> list[PairedExample]:
        """Return the examples that a paired comparison of two models uses."""


def read_records(probe: object, rows: Sequence[list[Any]]) -> list[Any]:
    """Return stored rows as records of the probe's `RECORD` class, or unchanged if it has none."""
    kind: type[Record] | None = getattr(probe, "RECORD", None)
    return [*rows] if kind is None else [kind.from_list(row) for row in rows]


def paths_of(files: Sequence[str]) -> list[Path]:
    return read.files(list(files))


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file with their places: JSON objects, CSV or .tsv with a header, Parquet."""
    reader = next((reader for ending, reader in _READERS.items() if ending in path.suffixes), _json_rows)
    for number, row in reader(path):
        if not isinstance(row, dict):
            raise DataError(f"{path}:{number}", f"found {type(row).__name__}", "a JSON object a line")
        yield f"{path}:{number}", row


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
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


def _decoded(text: str, location: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(location, f"not JSON: {error}", "a JSON object a line") from None


def _tsv_rows(path: Path) -> Iterator[tuple[int, Any]]:
    lines = ((number, line.split("\t")) for number, line in enumerate(read.lines(path), 1) if line.strip())
    return _cells(path, lines)


def _csv_rows(path: Path) -> Iterator[tuple[int, Any]]:
    reader = csv.reader((f"{line}\n" for line in read.lines(path)), strict=True)
    try:
        yield from _cells(path, ((reader.line_num, cells) for cells in reader if cells))
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}", f"not CSV: {error}", "quotes in pairs") from None


def _cells(path: Path, rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, Any]]:
    _, head = next(rows, (0, []))
    if not head:
        raise DataError(path, "is empty", "a line that names the columns, and rows")
    for number, cells in rows:
        if len(cells) != len(head):
            raise DataError(f"{path}:{number}", f"found {len(cells)} columns", f"{len(head)}, as in the first line")
        yield number, dict(zip(head, cells, strict=True))


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with open_parquet(path) as file:
        yield from enumerate((row for batch in file.iter_batches() for row in batch.to_pylist()), 1)


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
    ".tsv": _tsv_rows,
    ".csv": _csv_rows,
    ".parquet": _parquet_rows,
}


def text_of(result: dict[str, Any], key: str, location: str) -> str:
    """Return the text under `key` of a record; raise an error if it is missing or empty."""
    if key not in result:
        keys = ", ".join(list(result)[:8]) or "none"
        raise DataError(location, f"has no key `{key}` (keys: {keys})", f"`{key}`, a text")
    if not isinstance(result[key], str) or not result[key].strip():
        raise DataError(location, f"`{key}` is {'empty' if isinstance(result[key], str) else 'not a text'}", "a text")
    valid(result[key], location)
    return str(result[key])


def valid(text: str, location: str) -> None:
    """Raise an error if a text holds half of a surrogate pair, which JSON allows and UTF-8 does not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(location, f"invalid UTF-8 at character {error.start + 1}", "UTF-8 text") from None


def fits(scorer: Scorer, item: Item, location: str, text: str) -> None:
    """Raise an error if an item has no token to score, or more tokens than the model can read."""
    short = repr(text if len(text) <= 40 else text[:37] + "...")
    if item.scored_count < 1:
        raise DataError(location, f"{short} has no token that can be scored", "a longer text")
    if len(item) > (longest := max_tokens_of(scorer, sign=item.sign)):
        result = f"{short} has {len(item):,} tokens"
        raise DataError(location, result, f"at most {longest:,}, the model's window", "shorten it, or leave it out")


def max_tokens_of(scorer: Scorer, *, sign: bool) -> int:
    """Return how many tokens of a text the model can read, after the start token or without it."""
    return scorer.max_tokens + (len(scorer.start_tokens) if scorer.start_tokens is not None and not sign else 0)


def share(right: float, count: int) -> tuple[float, float]:
    """Return the percentage of right examples and its standard error, for independent examples."""
    p = right / count
    return 100 * p, 100 * math.sqrt(p * (1 - p) / count)


def ratio_error(sums: Sequence[float], counts: Sequence[float], seed: int = 0) -> float:
    """Return the standard error of sum / count over all records, from a bootstrap with a fixed seed."""
    numerators, denominators = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    if len(sums) < 2:
        return math.nan
    chance = np.random.default_rng(seed)
    drawn: NDArray[np.float64] = np.empty(DRAWS)
    for n in range(DRAWS):
        sample = chance.integers(len(sums), size=len(sums))
        drawn[n] = numerators[sample].sum() / denominators[sample].sum()
    return float(drawn.std(ddof=1))


def perplexity(loss: float) -> float:
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf
