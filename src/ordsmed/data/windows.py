"""Windows: the token range of the store in each row; index maps, computed by arithmetic where possible.

    store:  doc 0 ....................|doc 1 .....|doc 2 ..............
    rows:   [......][......][......][....|....][..|......][......]        pack, split anywhere: only arithmetic
    rows:   [....]  [......][...]  [....|....]    [......][....]          pack, split at sentences: one int64 per row
    rows:   [......][......][....]   [.....]      [......][......][.]     pack = false: no row holds two documents
    rows:   [..|..|.|][..|...|][.|||...|.|]       [...|.||..|][....|]     lines: each sentence and its stop

Each document in a row takes `joint` positions in addition to its tokens ([CLS] and [SEP]); `room` is the row length
without those of the first document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
BLOCK = 1_000_000


class Windows(Protocol):
    """Rows as token ranges of the store."""

    def __len__(self) -> int:
        """Return the number of rows per epoch."""

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return first token and end of each row."""


@dataclass(frozen=True)
class Packed:
    """Full rows of consecutive documents, split wherever a row ends."""

    document_starts: Ints
    room: int
    joint: int

    def __len__(self) -> int:
        documents = len(self.document_starts) - 1
        return int(-(-(self.document_starts[-1] + self.joint * (documents - 1)) // self.room))

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        return self._token(rows * self.room), self._token((rows + 1) * self.room)

    def _token(self, position: Ints) -> Ints:
        """Return the token at or after each position of the stream, in which `joint` positions separate documents."""
        starts = self.document_starts
        document = document_at(starts, position, self.joint, len(starts) - 1)
        return np.minimum(position - self.joint * document, starts[document + 1])


@dataclass(frozen=True)
class Single:
    """One document per row; long documents have several rows."""

    document_starts: Ints
    first_rows: Ints  # first row of each document; last = number of rows
    room: int

    @staticmethod
    def of(document_starts: Ints, room: int) -> Single:
        lengths = np.diff(document_starts)
        return Single(document_starts, np.concatenate([[0], np.cumsum(-(-lengths // room))]), room)

    def __len__(self) -> int:
        return int(self.first_rows[-1])

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        document = np.searchsorted(self.first_rows, rows, "right") - 1
        start = self.document_starts[document] + (rows - self.first_rows[document]) * self.room
        return start, np.minimum(start + self.room, self.document_starts[document + 1])


@dataclass(frozen=True)
class Fitted:
    """Rows of complete sentences; only a sentence longer than a row is split."""

    bounds: Ints  # first token of each row; last = end of the store

    @staticmethod
    def of(document_starts: Ints, sentence_starts: Ints, room: int, joint: int, *, pack: bool) -> Fitted:
        edges, first, last, block = [0], 0, len(sentence_starts) - 1, max(BLOCK, 2 * room)
        while first < last:
            end = min(first + block, last)
            rows = _walk(document_starts, sentence_starts[first : end + 1], edges[-1], room, joint, pack)
            edges += rows if end == last else rows[:-1] or rows  # the last row may continue in the next block
            first = end if end == last else int(np.searchsorted(sentence_starts, edges[-1], "right")) - 1
        return Fitted(np.asarray(edges, np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        return self.bounds[rows], self.bounds[rows + 1]


@dataclass(frozen=True)
class SentenceLines:
    """Rows of complete sentences with a stop token after each, as in RoBERTa; with `cross`, one more between documents.

    fairseq encodes the empty line between documents as a sentence that is only its stop token. This token ends a row
    or, if it does not fit, begins the next one. A row of this token alone, which fairseq would make, is dropped.
    """

    document_starts: Ints
    sentence_starts: Ints
    bounds: Ints  # 2 x first token of each row, + 1 if the stop between documents precedes it; last: end
    room: int
    cross: bool

    @staticmethod
    def of(document_starts: Ints, sentence_starts: Ints, room: int, *, cross: bool) -> SentenceLines:
        """Fill each row with as many sentences as fit; a longer sentence is split, each part with a stop token."""
        edges, first, last, block = [0], 0, len(sentence_starts) - 1, max(BLOCK, 2 * room)
        while first < last:
            end = min(first + block, last)
            rows = _walk_lines(document_starts, sentence_starts[first : end + 1], edges[-1], room, cross)
            edges += rows if end == last else rows[:-1] or rows
            first = end if end == last else int(np.searchsorted(sentence_starts, edges[-1] // 2, "right")) - 1
        return SentenceLines(document_starts, sentence_starts, np.asarray(edges, np.int64), room, cross)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        return self.bounds[rows] >> 1, self.bounds[rows + 1] >> 1

    def parts(self, rows: Ints) -> SentenceParts:
        """Return the sentences of rows and the numbers of their stop tokens."""
        cut = split(self.sentence_starts, *self.spans(rows))
        full = cut.stop > cut.start
        row, start, stop = cut.row[full], cut.start[full], cut.stop[full]
        led, stops = self.bounds[rows] & 1, np.ones_like(row)
        if self.cross:
            stops += _begins(self.document_starts, stop) & (stop < self.document_starts[-1])
            over = led + np.bincount(row, stop - start + stops, len(rows)).astype(np.int64) - self.room
            stops -= (over[row] > 0) & (np.diff(row, append=len(rows)) > 0)  # the last stop is in the next row
        return SentenceParts(row, start, stop, stops, led)


@dataclass(frozen=True)
class SentenceParts:
    """Sentences, or parts of long sentences, in row order."""

    row: Ints  # index of the row among the requested rows
    start: Ints
    stop: Ints
    stops: Ints  # number of stop tokens after it, including that between documents
    led: Ints  # for each row: stop tokens before its first sentence


def windows(
    document_starts: Ints, sentence_starts: Ints, *, room: int, joint: int, pack: bool, sentences: bool
) -> Windows:
    if sentences:
        return Fitted.of(document_starts, sentence_starts, room, joint, pack=pack)
    return Packed(document_starts, room, joint) if pack else Single.of(document_starts, room)


@dataclass(frozen=True)
class DocumentPieces:
    """The parts of rows that come from one document each, in row order."""

    row: Ints  # index of the row among the requested rows
    document: Ints
    start: Ints
    stop: Ints

    @staticmethod
    def join(parts: Sequence[DocumentPieces], rows: Sequence[Ints]) -> DocumentPieces:
        """Join the parts of several sources as consecutive rows; `rows`: the rows of each source."""
        firsts = np.cumsum([0, *map(len, rows[:-1])])
        row = np.concatenate([part.row + first for part, first in zip(parts, firsts, strict=True)])
        names = ("document", "start", "stop")
        return DocumentPieces(row, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def split(document_starts: Ints, start: Ints, stop: Ints) -> DocumentPieces:
    first = np.minimum(np.searchsorted(document_starts, start, "right"), len(document_starts) - 1) - 1
    count = np.maximum(np.searchsorted(document_starts, stop, "left") - first, 1)
    row = np.repeat(np.arange(len(start)), count)
    document = np.repeat(first, count) + run(count)
    begins, ends = document_starts[document], document_starts[document + 1]
    return DocumentPieces(row, document, np.maximum(start[row], begins), np.minimum(stop[row], ends))


def run(counts: Ints) -> Ints:
    """Return 0..c-1 for every count c, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def document_at(starts: Ints, position: Ints, joint: int, documents: int) -> Ints:
    """Return the last document whose joined position, starts[d] + joint * d, is at or before each position."""
    low, high = np.zeros_like(position), np.full_like(position, documents - 1)
    while (low < high).any():  # bisection, because an array of joined starts would take 8 bytes per document
        middle = (low + high + 1) // 2
        before = starts[middle] + joint * middle <= position
        low, high = np.where(before, middle, low), np.where(before, high, middle - 1)
    return low


def _walk(document_starts: Ints, starts: Ints, bound: int, room: int, joint: int, pack: bool) -> list[int]:
    """Return the ends of rows within one block of sentences, from `bound`; the last row of the block may be short."""
    filled = np.append(np.diff(starts) > 0, True)  # stores of other programs may have empty sentences
    units = _units(np.asarray(starts, np.int64)[filled], room)
    units = units[np.searchsorted(units, bound) :]
    document = np.searchsorted(document_starts, units[:-1], "right") - 1
    starts_in_rows, ends = units[:-1] + joint * document, units[1:] + joint * document
    after = np.searchsorted(ends, starts_in_rows + room, "right")
    if not pack:
        after = np.minimum(after, np.searchsorted(units, document_starts[document + 1]))
    follow, unit, visited = after.tolist(), 0, []
    while unit < len(follow):
        unit = follow[unit]
        visited.append(unit)
    return [int(b) for b in units[visited]]


def _walk_lines(document_starts: Ints, starts: Ints, bound: int, room: int, cross: bool) -> list[int]:
    """Return the ends of rows like `_walk`, for sentences with stop tokens and the tokens between documents."""
    filled = np.append(np.diff(starts) > 0, True)
    units = _units(np.asarray(starts, np.int64)[filled], room - 1)
    units = units[np.searchsorted(units, bound // 2) :]
    if len(units) < 2:
        return []
    new = _begins(document_starts, units[:-1])
    new[0] = bound % 2
    between = new & cross
    item = np.arange(len(new)) + np.cumsum(between)  # index of each unit; the stop before it has the previous index
    sizes = np.ones(item[-1] + 1, np.int64)
    sizes[item] += np.diff(units)
    ends, is_stop = np.cumsum(sizes), sizes == 1
    after = np.searchsorted(ends, ends - sizes + room, "right")
    if not cross:
        borders = np.append(np.flatnonzero(new), len(new))
        after = np.minimum(after, borders[np.searchsorted(borders, np.arange(len(new)), "right")])
    alone = np.append(is_stop & (after == np.arange(len(is_stop)) + 1), False)
    follow, at, visited = (after + alone[after]).tolist(), 0, []
    while at < len(follow):
        at = follow[at]
        visited.append(at)
    bounds = np.append(2 * np.repeat(units[:-1], 1 + between) + is_stop, 2 * units[-1])
    return [int(b) for b in bounds[visited]]


def _begins(document_starts: Ints, token: Ints) -> NDArray[np.bool_]:
    return np.asarray(document_starts[np.searchsorted(document_starts, token)] == token)


def _units(starts: Ints, room: int) -> Ints:
    counts = -(-np.diff(starts) // room)
    if counts.max(initial=1) <= 1:
        return starts
    return np.concatenate([np.repeat(starts[:-1], counts) + run(counts) * room, starts[-1:]])
