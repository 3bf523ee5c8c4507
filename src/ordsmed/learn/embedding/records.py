"""Records of text pairs from files: the different texts, and which of them belong together.

    files -> PairRecords(texts, first, members, scores)      record r: members[first[r] : first[r + 1]]

The first member of a record is its anchor, the second the positive, all others negatives. A text that is both an anchor
and a positive or negative is stored twice, because each role may have its own prompt.
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
    texts: list[str]  # each once: anchors (queries) before passages
    queries: int  # number of anchors among them
    first: Ints  # [R + 1]
    members: Ints
    scores: NDArray[np.float64]  # of each member; NaN for anchors and unknown scores
    files: list[Path]
    sets: Ints  # [files + 1]  the first record of each file; last = number of records
    lines: list[int]  # [R]

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def anchors(self) -> Ints:
        return self.members[self.first[:-1]]

    @property
    def positives(self) -> Ints:
        return self.members[self.first[:-1] + 1]

    @property
    def gold(self) -> NDArray[np.float64]:
        """Return the score of each record, which is the score of its positive."""
        return self.scores[self.first[:-1] + 1]

    @property
    def scored(self) -> bool:
        return not bool(np.isnan(self.gold).any())

    @property
    def negatives(self) -> int:
        return len(self.members) - 2 * len(self)

    def right(self) -> dict[int, list[int]]:
        """Return all positives of each anchor, numbered from the first passage."""
        right: dict[int, list[int]] = {}
        for anchor, positive in zip(self.anchors.tolist(), self.positives.tolist(), strict=True):
            right.setdefault(anchor, []).append(positive - self.queries)
        return right

    @property
    def locations(self) -> list[str]:
        if len(self.files) == 1:
            return [f"{line}" for line in self.lines]
        names = np.repeat(np.array([str(path) for path in self.files], object), np.diff(self.sets))
        return [f"{name}:{line}" for name, line in zip(names, self.lines, strict=True)]

    def place(self, record: int) -> str:
        return f"{self.files[int(np.searchsorted(self.sets, record, 'right')) - 1]}:{self.lines[record]}"


def read_records(paths: Sequence[str], format: Format | None, errors: read.Errors, *, header: bool) -> PairRecords:
    files = read.files(paths)
    return records_of(files, [read_pairs(path, format=format, header=header, errors=errors) for path in files])


def records_of_pairs(texts: Sequence[str], seconds: Sequence[str]) -> PairRecords:
    pairs = [PairRow(n, text, second) for n, (text, second) in enumerate(zip(texts, seconds, strict=True), 1)]
    return records_of([Path("texts")], [pairs])


def records_of(files: Sequence[Path], read: Sequence[Sequence[PairRow]]) -> PairRecords:
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
