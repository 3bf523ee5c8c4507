"""Features: the tokenized examples of a task in columns, stored on disk and packed into batches.

    example e: ids[starts[e] : starts[e + 1]]      with types and marks of the same length; an example has labels

    batch of examples  ->  a row length that leaves little padding  ->  rows with one or several examples each

A batch of short examples has few rows, whatever the length of the longest example.
"""

from __future__ import annotations

import bisect
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.order import draw
from ordsmed.data.pieces import TextFrame
from ordsmed.data.rows import Span, see
from ordsmed.data.windows import Ints, run

STEP = 8  # row lengths are multiples of it, which is faster on GPUs
REACH = 128  # tokens that a row may be longer than the longest example
FULL = 800  # row length at which attention takes as long as the other layers of a narrow network
NOT_ASKED = -1
FORMER = {"letters": "characters"}  # names of columns in older folders


@dataclass(frozen=True)
class Features:
    """Examples, stored end to end."""

    starts: Ints  # [E + 1]
    ids: NDArray[np.int32]  # [N], special tokens included
    types: NDArray[np.uint8] | None = None  # [N]
    marks: NDArray[np.int32] | None = None  # [N]  target of each token, -1: none
    labels: NDArray[Any] | None = None  # [E] or [E, K]
    characters: NDArray[np.uint8] | None = None  # for words: the bytes of the words that the ids index
    words: Ints | None = None  # start of each word in `characters`
    more: dict[str, NDArray[Any]] = field(default_factory=dict)  # further columns of the task

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Ints:
        return np.diff(self.starts)

    def save(self, folder: Path) -> None:
        with files.making(folder) as part:
            columns = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "more"}
            for name, values in (columns | {f"more.{name}": values for name, values in self.more.items()}).items():
                if values is not None:
                    np.save(part / f"{name}.npy", values, allow_pickle=False)

    @staticmethod
    def open(folder: Path) -> Features:
        columns = {p.stem: files.mapped(p, "a column of features", "delete the folder") for p in folder.glob("*.npy")}
        columns = {FORMER.get(name, name): values for name, values in columns.items()}
        if "starts" not in columns or "ids" not in columns:
            raise DataError(folder, "starts.npy or ids.npy is missing", "features", "delete the folder")
        names = {f.name for f in dataclasses.fields(Features)} - {"more"}
        more = {name.removeprefix("more."): values for name, values in columns.items() if name not in names}
        return Features(**{name: values for name, values in columns.items() if name in names}, more=more)


@dataclass(frozen=True)
class Text:
    """A part of each example: a range of tokens of one text."""

    ids: Ints  # of all texts, end to end
    first: Ints  # [E]  start of each example's part in `ids`
    last: Ints  # [E]


def framed(
    frame: TextFrame, first_text: Text, second_text: Text | None = None
) -> tuple[Ints, Ints, NDArray[np.uint8], list[Ints]]:
    """Add special tokens; return starts of examples, ids, types, and the position of each part's first token [E]."""
    count = len(first_text.first)
    specials = [frame.before, frame.after] if second_text is None else [frame.before, frame.between, frame.after]
    parts = [first_text] if second_text is None else [first_text, second_text]
    sizes = [part.last - part.first for part in parts]
    starts = np.concatenate([[0], np.cumsum(sum(sizes) + sum(map(len, specials)))])
    ids = np.empty(int(starts[-1]), np.int64)
    kinds = np.zeros(len(ids), np.uint8)
    at, begun = starts[:-1].copy(), []
    for number, put in enumerate(specials):
        for special in put:
            ids[at] = special
            kinds[at] = max(number - 1, 0)
            at += 1
        if number == len(parts):
            break
        inside, size = run(sizes[number]), sizes[number]
        positions = np.repeat(at, size) + inside
        ids[positions] = parts[number].ids[np.repeat(parts[number].first, size) + inside]
        kinds[positions] = number
        begun.append(at - starts[:-1])
        at = at + size
    assert count == len(begun[0])
    return starts, ids, kinds, begun


@dataclass(frozen=True)
class Packing:
    pad: int
    alone: bool = False  # one example per row
    length: int = 0  # of every row; 0: chosen for each batch

    def batch(self, features: Features, chosen: Ints, numbers: Ints) -> Batch:
        """Return the batch of the examples `chosen`; `numbers` are their row numbers."""
        sizes = features.sizes[chosen]
        length, row, column = self._layout(sizes)
        rows = int(row.max()) + 1
        inside = run(sizes)
        example = np.repeat(np.arange(len(chosen)), sizes)
        location = (row * length + column)[example] + inside
        source = features.starts[chosen][example] + inside

        def fill_rows(values: NDArray[Any] | None, fill: int, dtype: type[np.generic]) -> NDArray[Any]:
            filled = np.full(rows * length, fill, dtype)
            if values is not None:
                filled[location] = values[source]
            return filled.reshape(rows, length)

        documents, positions = np.zeros(rows * length, np.int32), np.zeros(rows * length, np.int64)
        documents[location] = _order_in_row(row, column)[example]
        positions[location] = inside
        marks = fill_rows(features.marks, NOT_ASKED, np.int64)
        tokens = fill_rows(features.ids, self.pad, np.int64)
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=positions.reshape(rows, length),
            documents=see(documents.reshape(rows, length)),
            types=None if features.types is None else fill_rows(features.types, 0, np.int64),
            targets=np.maximum(marks, 0),
            weights=(marks != NOT_ASKED).astype(np.float32),
            spans=np.stack([row * length + column, sizes], 1),
            labels=None if features.labels is None else np.ascontiguousarray(features.labels[chosen]),
            **_listed(features, tokens),
        )

    def _layout(self, sizes: Ints) -> tuple[int, Ints, Ints]:
        if self.alone:
            return self.length or rounded(sizes), np.arange(len(sizes)), np.zeros_like(sizes)
        return (self.length, *_packed(sizes, self.length)) if self.length else _well_packed(sizes)


class ExampleRows:
    """Batches of examples by running number, in a different order each epoch."""

    def __init__(self, features: Features, packing: Packing, *key: object) -> None:
        self.features, self.packing, self.key = features, packing, key

    def __len__(self) -> int:
        return len(self.features)

    @property
    def tokens(self) -> float:
        return float(self.features.sizes.mean())

    def batch(self, numbers: Ints) -> Batch:
        return self.packing.batch(self.features, self._chosen(numbers), numbers)

    def spans(self, numbers: Ints) -> list[Span]:
        chosen = self._chosen(numbers)
        sizes = self.features.sizes[chosen]
        return [Span(int(n), 0, int(e), 0, int(size)) for n, e, size in zip(numbers, chosen, sizes, strict=True)]

    def _chosen(self, numbers: Ints) -> Ints:
        return draw(numbers, len(self), *self.key)


def by_length(sizes: Ints, tokens: int) -> list[Ints]:
    """Return all examples in batches of similar lengths with at most `tokens` tokens each, for inference."""
    order = np.argsort(-sizes, kind="stable")
    groups, at = [], 0
    while at < len(order):
        count = max(1, tokens // int(sizes[order[at]]))
        groups.append(order[at : at + count])
        at += count
    return groups


def rounded(sizes: Ints) -> int:
    """Return the shortest row length for these examples; a multiple of STEP unless all have the same size."""
    longest = int(sizes.max())
    return longest if longest == sizes.min() else -(-longest // STEP) * STEP


def _well_packed(sizes: Ints) -> tuple[int, Ints, Ints]:
    """Return the cheapest row length and each example's row and column; longer rows have less padding."""
    shortest, tokens = rounded(sizes), int(sizes.sum())
    best, least = (shortest, *_packed(sizes, shortest)), np.inf
    for length in (shortest, *range(-(-shortest // STEP) * STEP, shortest + REACH + 1, STEP)):
        dear = 1 + length / FULL  # relative cost of a token in rows of this length
        if tokens * dear >= least:
            break
        row, column = _packed(sizes, length) if length > shortest else best[1:]
        cost = (int(row.max()) + 1) * length * dear
        if cost < least:
            best, least = (length, row, column), cost
    return best


def _packed(sizes: Ints, length: int) -> tuple[Ints, Ints]:
    """Return row and column of each example: the longest first, each into the fullest row with room for it."""
    row, column = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    rooms: list[tuple[int, int]] = []  # free positions and number of each row; the fullest first
    rows = 0
    for e in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[e])
        at = bisect.bisect_left(rooms, (size, 0))
        if at < len(rooms):
            room, index = rooms.pop(at)
        else:
            room, index, rows = length, rows, rows + 1
        row[e], column[e] = index, length - room
        bisect.insort(rooms, (room - size, index))
    return row, column


def _order_in_row(row: Ints, column: Ints) -> NDArray[np.int32]:
    order = np.lexsort((column, row))
    first = np.searchsorted(row[order], row[order])
    ranks = np.empty(len(row), np.int32)
    ranks[order] = np.arange(len(row)) - first + 1
    return ranks


def _listed(features: Features, tokens: Ints) -> dict[str, NDArray[Any]]:
    """For words, renumber the tokens by a list of the batch's words, in place, and return the list."""
    if features.words is None or features.characters is None:
        return {}
    different = np.union1d(tokens, [0, 1])
    begin, end = features.words[different], features.words[different + 1]
    location = np.repeat(begin, end - begin) + run(end - begin)
    tokens[:] = np.searchsorted(different, tokens)
    starts = np.concatenate([[0], np.cumsum(end - begin)])
    return {"characters": np.ascontiguousarray(features.characters[location]), "words": starts}
