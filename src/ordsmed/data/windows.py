"""Windows: which tokens of the store a row holds; pure index maps, computed and not listed where that is possible.

    store:  doc 0 ....................|doc 1 .....|doc 2 ..............
    rows:   [......][......][......][....|....][..|......][......]        pack, cut anywhere: arithmetic alone
    rows:   [....]  [......][...]  [....|....]    [......][....]          pack, cut at sentences: one int64 a row
    rows:   [......][......][....]   [.....]      [......][......][.]     pack = false: no row holds two documents
    rows:   [..|..|.|][..|...|][.|||...|.|]       [...|.||..|][....|]     lines: each sentence and its stop

Each document in a row costs `joint` positions more than its tokens ([CLS] and [SEP]); `room` is without the first's.
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
    """Rows as ranges of token positions in the store."""

    def __len__(self) -> int:
        """How many rows an epoch has."""

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        """First token and end of each row."""


@dataclass(frozen=True)
class Packed:
    """Every row full, documents side by side, cut wherever the row ends."""

    document_starts: Ints
    room: int
    joint: int

    def __len__(self) -> int:
        documents = len(self.document_starts) - 1
        return int(-(-(self.document_starts[-1] + self.joint * (documents - 1)) // self.room))

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        return self._token(rows * self.room), self._token((rows + 1) * self.room)

    def _token(self, place: Ints) -> Ints:
        """The token at, or first after, a place of the stream in which documents are joined by `joint` places."""
        starts = self.document_starts
        document = document_at(starts, place, self.joint, len(starts) - 1)
        return np.minimum(place - self.joint * document, starts[document + 1])


@dataclass(frozen=True)
class Single:
    """One document a row, long ones in several rows."""

    document_starts: Ints
    first_rows: Ints  # the row each document begins with; last = number of rows
    room: int

    @staticmethod
    def of(document_starts: Ints, room: int) -> Single:
        """Count the rows of every document."""
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
    """Rows of whole sentences; only a sentence longer than a row is cut."""

    bounds: Ints  # where each row begins; last = end of the store

    @staticmethod
    def of(document_starts: Ints, sentence_starts: Ints, room: int, joint: int, *, pack: bool) -> Fitted:
        """Fill each row with as many whole sentences as fit; `sentence_starts` ends with the number of tokens."""
        edges, first, last, block = [0], 0, len(sentence_starts) - 1, max(BLOCK, 2 * room)
        while first < last:
            end = min(first + block, last)
            rows = _walk(document_starts, sentence_starts[first : end + 1], edges[-1], room, joint, pack)
            edges += rows if end == last else rows[:-1] or rows  # the next block may have more for the last row
            first = end if end == last else int(np.searchsorted(sentence_starts, edges[-1], "right")) - 1
        return Fitted(np.asarray(edges, np.int64))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        return self.bounds[rows], self.bounds[rows + 1]


@dataclass(frozen=True)
class SentenceLines:
    """Rows of whole sentences with a stop token after each, RoBERTa's; across documents one more between two.

    fairseq encodes the empty line there as a sentence of nothing but its stop. So that stop ends a row or, where it no
    longer fits, begins the next; a row of it alone, which fairseq would make, is left out.
    """

    document_starts: Ints
    sentence_starts: Ints
    bounds: Ints  # twice the token each row begins with, 1 more where the stop between documents is first; last: end
    room: int
    cross: bool

    @staticmethod
    def of(document_starts: Ints, sentence_starts: Ints, room: int, *, cross: bool) -> SentenceLines:
        """Fill each row with as many sentences as fit; one longer than a row is cut, with a stop after each part."""
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
        """The sentences of rows and their stop tokens."""
        cut = split(self.sentence_starts, *self.spans(rows))
        full = cut.stop > cut.start
        row, start, stop = cut.row[full], cut.start[full], cut.stop[full]
        led, stops = self.bounds[rows] & 1, np.ones_like(row)
        if self.cross:
            stops += _begins(self.document_starts, stop) & (stop < self.document_starts[-1])
            over = led + np.bincount(row, stop - start + stops, len(rows)).astype(np.int64) - self.room
            stops -= (over[row] > 0) & (np.diff(row, append=len(rows)) > 0)  # the last one is in the next row
        return SentenceParts(row, start, stop, stops, led)


@dataclass(frozen=True)
class SentenceParts:
    """Sentences, or parts of long ones, in row order."""

    row: Ints  # which of the asked rows
    start: Ints
    stop: Ints
    stops: Ints  # how many come after it: its own, and the one between documents
    led: Ints  # of each row: stop tokens that come before its first sentence


def windows(
    document_starts: Ints, sentence_starts: Ints, *, room: int, joint: int, pack: bool, sentences: bool
) -> Windows:
    """The windows an objective asked for."""
    if sentences:
        return Fitted.of(document_starts, sentence_starts, room, joint, pack=pack)
    return Packed(document_starts, room, joint) if pack else Single.of(document_starts, room)


@dataclass(frozen=True)
class DocumentPieces:
    """The parts of rows that come from one document each, in row order."""

    row: Ints  # which of the asked rows
    document: Ints
    start: Ints
    stop: Ints

    @staticmethod
    def join(parts: Sequence[DocumentPieces], rows: Sequence[Ints]) -> DocumentPieces:
        """Of rows end to end; each part is of as many as `rows` has of it."""
        firsts = np.cumsum([0, *map(len, rows[:-1])])
        row = np.concatenate([part.row + first for part, first in zip(parts, firsts, strict=True)])
        names = ("document", "start", "stop")
        return DocumentPieces(row, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def split(document_starts: Ints, start: Ints, stop: Ints) -> DocumentPieces:
    """Cut rows at the borders of documents."""
    first = np.minimum(np.searchsorted(document_starts, start, "right"), len(document_starts) - 1) - 1
    count = np.maximum(np.searchsorted(document_starts, stop, "left") - first, 1)
    row = np.repeat(np.arange(len(start)), count)
    document = np.repeat(first, count) + run(count)
    begins, ends = document_starts[document], document_starts[document + 1]
    return DocumentPieces(row, document, np.maximum(start[row], begins), np.minimum(stop[row], ends))


def run(counts: Ints) -> Ints:
    """0..c-1 for every count c, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def document_at(starts: Ints, place: Ints, joint: int, documents: int) -> Ints:
    """The last of so many documents whose joined place, starts[d] + joint * d, is at or before each place."""
    low, high = np.zeros_like(place), np.full_like(place, documents - 1)
    while (low < high).any():  # halving by hand: a second array of starts would cost 8 bytes a document
        middle = (low + high + 1) // 2
        before = starts[middle] + joint * middle <= place
        low, high = np.where(before, middle, low), np.where(before, high, middle - 1)
    return low


def _walk(document_starts: Ints, starts: Ints, bound: int, room: int, joint: int, pack: bool) -> list[int]:
    """Follow the rows through one block of sentences, from `bound`; the last row of the block may be cut short."""
    filled = np.append(np.diff(starts) > 0, True)  # stores made elsewhere may hold empty sentences
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
    """The same for sentences with stop tokens: in rows lie sentences and, each by itself, stop tokens between them."""
    filled = np.append(np.diff(starts) > 0, True)
    units = _units(np.asarray(starts, np.int64)[filled], room - 1)
    units = units[np.searchsorted(units, bound // 2) :]
    if len(units) < 2:
        return []
    new = _begins(document_starts, units[:-1])
    new[0] = bound % 2
    between = new & cross
    item = np.arange(len(new)) + np.cumsum(between)  # of each unit; that of the stop before it is one less
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
    """Does a document begin with each token?"""
    return np.asarray(document_starts[np.searchsorted(document_starts, token)] == token)


def _units(starts: Ints, room: int) -> Ints:
    """Sentence starts, with more of them inside sentences longer than a row."""
    counts = -(-np.diff(starts) // room)
    if counts.max(initial=1) <= 1:
        return starts
    return np.concatenate([np.repeat(starts[:-1], counts) + run(counts) * room, starts[-1:]])
