"""Pairs of texts of some files, each different text once, and which of them belong together.

    files -> PairRecords(texts, first, members, scores)      record r: members[first[r] : first[r + 1]]

The first member of a record is its anchor, the second the positive, all others negatives. A text that is both asked
with and found stands twice, because each may have a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ordsmed.data.pieces import Ints
from ordsmed.text import read
from ordsmed.text.labelled.pairs import PairRow, read_pairs
from ordsmed.text.labelled.tables import Format


@dataclass(frozen=True)
class PairRecords:
    """Records of files, file after file."""

    texts: list[str]  # each once, those that are asked with before those that are found
    queries: int  # how many of them are asked with
    first: Ints  # [R + 1]
    members: Ints
    scores: NDArray[np.float64]  # of each member but anchors; not a number where none is told
    files: list[Path]
    sets: Ints  # [files + 1]  the first record of each
    lines: list[int]  # [R]

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def anchors(self) -> Ints:
        """The text that each record asks with."""
        return self.members[self.first[:-1]]

    @property
    def positives(self) -> Ints:
        """The text that belongs to it."""
        return self.members[self.first[:-1] + 1]

    @property
    def gold(self) -> NDArray[np.float64]:
        """The score of each record: that of its positive."""
        return self.scores[self.first[:-1] + 1]

    @property
    def scored(self) -> bool:
        """Is a score told of every record?"""
        return not bool(np.isnan(self.gold).any())

    @property
    def negatives(self) -> int:
        """How many are given, of all records."""
        return len(self.members) - 2 * len(self)

    def right(self) -> dict[int, list[int]]:
        """Of each anchor all that belongs to it, numbered from the first text that is found."""
        right: dict[int, list[int]] = {}
        for anchor, positive in zip(self.anchors.tolist(), self.positives.tolist(), strict=True):
            right.setdefault(anchor, []).append(positive - self.queries)
        return right

    @property
    def locations(self) -> list[str]:
        """The line of each, with its file where there are several."""
        if len(self.files) == 1:
            return [f"{line}" for line in self.lines]
        names = np.repeat(np.array([str(path) for path in self.files], object), np.diff(self.sets))
        return [f"{name}:{line}" for name, line in zip(names, self.lines, strict=True)]

    def place(self, record: int) -> str:
        """File and line of a record, for a complaint."""
        return f"{self.files[int(np.searchsorted(self.sets, record, 'right')) - 1]}:{self.lines[record]}"


def read_records(paths: Sequence[str], format: Format | None, errors: read.Errors, *, header: bool) -> PairRecords:
    """What files hold, in the form that settings of a task say."""
    files = read.files(paths)
    return records_of(files, [read_pairs(path, format=format, header=header, errors=errors) for path in files])


def records_of_pairs(texts: Sequence[str], seconds: Sequence[str]) -> PairRecords:
    """Of pairs that are asked about."""
    pairs = [PairRow(n, text, second) for n, (text, second) in enumerate(zip(texts, seconds, strict=True), 1)]
    return records_of([Path("texts")], [pairs])


def records_of(files: Sequence[Path], read: Sequence[Sequence[PairRow]]) -> PairRecords:
    """What files hold, as records."""
    pairs = list(chain.from_iterable(read))
    queries = {text: number for number, text in enumerate(dict.fromkeys(pair.anchor for pair in pairs))}
    found_texts = dict.fromkeys(chain.from_iterable((pair.positive, *pair.negatives) for pair in pairs))
    passages = {text: number for number, text in enumerate(found_texts, len(queries))}
    sizes = [2 + len(pair.negatives) for pair in pairs]
    members = chain.from_iterable(
        (queries[pair.anchor], passages[pair.positive], *(passages[text] for text in pair.negatives)) for pair in pairs
    )
    first = np.cumsum([0, *sizes], dtype=np.int64)
    scores = np.full(int(first[-1]), np.nan)
    for begin, pair in zip(first.tolist(), pairs, strict=False):
        scores[begin + 1 : begin + 1 + len(pair.scores)] = pair.scores
    return PairRecords(
        texts=[*queries, *passages],
        queries=len(queries),
        first=first,
        members=np.fromiter(members, np.int64, len(scores)),
        scores=scores,
        files=list(files),
        sets=np.cumsum([0, *map(len, read)], dtype=np.int64),
        lines=[pair.line for pair in pairs],
    )
