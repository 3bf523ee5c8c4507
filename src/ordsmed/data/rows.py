"""Rows: numbered rows of one store or a weighted blend, assembled from windows; objectives corrupt them afterwards.

number --order--> row of the epoch --windows--> token ranges --split--> pieces --assemble--> tokens, positions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.batch import Batch
from ordsmed.data.order import draw_from
from ordsmed.data.windows import DocumentPieces, Ints, Windows, document_at, run, split, windows

PATTERN = 10_000  # a blend has its weights exactly, in steps of 1/10000, in each run of this many rows
FINE = 1_000_000  # used instead if a source would have no row


class TokenSource(Protocol):
    """The interface of a store that rows need."""

    @property
    def tokens(self) -> NDArray[Any]:
        """Return all ids."""

    @property
    def document_starts(self) -> Ints:
        """Return the first token of each document; last = number of tokens."""

    @property
    def starts(self) -> Ints:
        """Return the first token of each sentence; last = number of tokens."""


class Rows(Protocol):
    """The interface between an objective and the loader: batches as a pure function of row numbers."""

    def __len__(self) -> int:
        """Return the number of rows per epoch."""

    def batch(self, numbers: Ints) -> Batch:
        """Return the batch of these row numbers, as the network receives it."""

    def spans(self, numbers: Ints) -> list[Span]:
        """Return the documents in these rows."""


@dataclass(frozen=True)
class Span:
    number: int
    source: int
    document: int
    start: int
    stop: int


@dataclass(frozen=True)
class Frame:
    """The special tokens around a part of a document: `before` + tokens + `after`; None adds nothing."""

    length: int
    before: int | None
    after: int | None
    pad: int

    @property
    def joint(self) -> int:
        """Return the number of special tokens per part."""
        return (self.before is not None) + (self.after is not None)


@dataclass(frozen=True)
class Assembled:
    """Rows before corruption, [B, T] each."""

    tokens: NDArray[np.int64]
    documents: NDArray[np.int32]  # 1.. in each row, 0 = padding
    positions: NDArray[np.int64]
    inner: NDArray[np.bool_]  # True for tokens of the store, False for special tokens and padding
    types: NDArray[np.int64] | None = None  # segment of a pair; None: one segment
    pairs: NDArray[np.int64] | None = None  # [B]  0: the second segment follows the first, 1: it does not

    @staticmethod
    def join(parts: Sequence[Assembled], order: Sequence[Ints]) -> Assembled:
        """Join the rows of several sources; `order` has the indices in the batch of each part's rows."""
        if len(parts) == 1:
            return parts[0]
        names = [name for name, values in vars(parts[0]).items() if values is not None]
        whole = Assembled(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
        return whole.ordered(np.argsort(np.concatenate(order)))

    def ordered(self, numbers: Ints) -> Assembled:
        return Assembled(**{name: values[numbers] for name, values in vars(self).items() if values is not None})


@dataclass(frozen=True)
class SeveralTokens:
    """Indexes the ids of several sources together, one source after the other; there may be thousands of sources."""

    sources: Sequence[NDArray[Any]]
    ends: Ints  # ends of the sources' positions, except the last

    @staticmethod
    def of(sources: Sequence[NDArray[Any]], parts: Sequence[DocumentPieces]) -> SeveralTokens:
        return SeveralTokens(sources, np.cumsum([int((part.stop - part.start).sum()) for part in parts])[:-1])

    def __getitem__(self, positions: Ints) -> NDArray[Any]:
        some = np.split(positions, self.ends)
        return np.concatenate([source[at] for source, at in zip(self.sources, some, strict=True)])


def assemble(source: NDArray[np.integer] | SeveralTokens, pieces: DocumentPieces, rows: int, frame: Frame) -> Assembled:
    lengths = pieces.stop - pieces.start
    sizes = lengths + frame.joint
    begun = np.cumsum(sizes) - sizes  # offset of each part, with all rows end to end
    first = np.searchsorted(pieces.row, np.arange(rows))
    inside = begun - begun[first][pieces.row]  # offset of each part in its row
    piece = np.repeat(np.arange(len(sizes)), sizes)
    within = run(sizes)
    location = pieces.row[piece] * frame.length + inside[piece] + within
    lead = int(frame.before is not None)
    body = (within >= lead) & (within < lead + lengths[piece])
    tokens = np.full(rows * frame.length, frame.pad, np.int64)
    documents, positions = np.zeros(len(tokens), np.int32), np.zeros(len(tokens), np.int64)
    inner = np.zeros(len(tokens), np.bool_)
    tokens[location[body]] = source[(pieces.start[piece] + within - lead)[body]]
    if frame.before is not None:
        tokens[location[within == 0]] = frame.before
    if frame.after is not None:
        tokens[location[within == sizes[piece] - 1]] = frame.after
    documents[location] = (np.arange(len(sizes)) - first[pieces.row] + 1)[piece]
    positions[location] = within
    inner[location[body]] = True
    shape = (rows, frame.length)
    return Assembled(tokens.reshape(shape), documents.reshape(shape), positions.reshape(shape), inner.reshape(shape))


def see(documents: NDArray[np.int32]) -> NDArray[np.int32] | None:
    """Return the document numbers for attention, or None if all tokens of every row see each other."""
    return None if (documents == 1).all() else documents


class Blend:
    """Maps running numbers to (source, row): sources by weight, and a permutation of each source's rows per epoch."""

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], *key: object) -> None:
        if min(sizes) < 1:
            raise DataError(f"source {int(np.argmin(sizes)) + 1}", "has no row of this length", "", "add text")
        if not all(0 < weight < float("inf") for weight in weights):
            raise RecipeError("data", f"found weights {', '.join(map(str, weights))}", "weights above 0")
        self.sizes, self.key = np.asarray(sizes, np.int64), key
        self.pattern, self.counts = _pattern(weights, chance.key("blend", *key))
        together = np.argsort(self.pattern, kind="stable")  # pattern indices, source by source
        firsts = np.cumsum(self.counts) - self.counts
        self.before = np.empty(len(self.pattern), np.int32)  # number of earlier rows of the same source
        self.before[together] = np.arange(len(self.pattern)) - np.repeat(firsts, self.counts)

    def __len__(self) -> int:
        return int(sum(self.sizes))

    def counted(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Return for each row number the source of that row, and the number of earlier rows from the same source.

        Row numbers continue through all epochs.
        """
        if len(self.sizes) == 1:
            return np.zeros_like(numbers), numbers
        block, inside = numbers // len(self.pattern), numbers % len(self.pattern)
        source = self.pattern[inside].astype(np.int64)
        return source, block * self.counts[source] + self.before[inside]

    def place(self, numbers: Ints) -> tuple[Ints, Ints]:
        source, count = self.counted(numbers)
        return source, draw_from(source, count, self.sizes, *self.key)


class PackedRows:
    """Rows of documents with special tokens, for masked prediction."""

    def __init__(
        self,
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        frame: Frame,
        window: Callable[[TokenSource], Windows],
        *key: object,
    ) -> None:
        self.sources, self.frame = sources, frame
        self.windows = [window(source) for source in sources]
        self.blend = Blend([len(w) for w in self.windows], weights, *key)

    @staticmethod
    def of(
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        frame: Frame,
        *key: object,
        pack: bool,
        sentences: bool = False,
    ) -> PackedRows:
        """Build rows of several documents, or of one; split documents anywhere, or at the ends of sentences."""
        room, joint = frame.length - frame.joint, frame.joint
        options: dict[str, Any] = {"room": room, "joint": joint, "pack": pack, "sentences": sentences}
        return PackedRows(sources, weights, frame, lambda s: windows(s.document_starts, s.starts, **options), *key)

    def __len__(self) -> int:
        return len(self.blend)

    def assembled(self, numbers: Ints) -> Assembled:
        source, rows = self.blend.place(numbers)
        order = {int(k): np.flatnonzero(source == k) for k in np.unique(source)}
        parts = [self._pieces(rows[at], k) for k, at in order.items()]
        tokens, positions = [self.sources[k].tokens for k in order], list(order.values())
        if len(order) == 1:
            return assemble(tokens[0], parts[0], len(numbers), self.frame)
        whole = assemble(
            SeveralTokens.of(tokens, parts), DocumentPieces.join(parts, positions), len(numbers), self.frame
        )
        return whole.ordered(np.argsort(np.concatenate(positions)))

    def spans(self, numbers: Ints) -> list[Span]:
        spans = []
        for number, source, row in zip(numbers, *self.blend.place(numbers), strict=True):
            p = self._pieces(np.asarray([row]), int(source))
            spans += [
                Span(int(number), int(source), *map(int, x)) for x in zip(p.document, p.start, p.stop, strict=True)
            ]
        return spans

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        source, rows = self.blend.place(numbers)
        return [(k, *self.windows[k].spans(rows[source == k])) for k in np.unique(source).tolist()]

    def _pieces(self, rows: Ints, source: int) -> DocumentPieces:
        return split(self.sources[source].document_starts, *self.windows[source].spans(rows))


@dataclass(frozen=True)
class Stream:
    """Rows of T + 1 tokens that advance by T tokens: end, document, end, document, ..., end.

    An end token is the last target of a document and the first input of the next one.
    """

    document_starts: Ints
    length: int
    first_rows: Ints | None  # one document per row: first row of each document; None: packed

    @staticmethod
    def of(document_starts: Ints, length: int, *, pack: bool) -> Stream:
        if pack:
            return Stream(document_starts, length, None)
        rows = -(-(np.diff(document_starts) + 1) // length)
        return Stream(document_starts, length, np.concatenate([[0], np.cumsum(rows)]))

    def __len__(self) -> int:
        if self.first_rows is not None:
            return int(self.first_rows[-1])
        return int(-(-(self.document_starts[-1] + len(self.document_starts) - 1) // self.length))

    def positions(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return document and offset of every token of the rows, [B, T + 1]; offset 0 is the end token before it."""
        starts, steps = self.document_starts, np.arange(self.length + 1)
        if self.first_rows is None:
            location = rows[:, None] * self.length + steps
            document = document_at(starts, location, 1, len(starts))
            return document, location - starts[document] - document
        document = np.searchsorted(self.first_rows, rows, "right") - 1
        offset = (rows - self.first_rows[document])[:, None] * self.length + steps
        document = np.broadcast_to(document[:, None], offset.shape)
        size = starts[document + 1] - starts[document]
        over = offset > size  # after the end token (offset 0 of the next document): -1, -2, ...
        return document + over, np.where(over, size + 1 - offset, offset)

    def spans(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return first token and end of the text that each row predicts; the first token of a row is not predicted."""
        return self._token(rows), self._token(rows + 1)

    def _token(self, rows: Ints) -> Ints:
        """Return the first text token that each row predicts."""
        starts = self.document_starts
        if self.first_rows is None:
            location = rows * self.length + 1
            document = document_at(starts, location, 1, len(starts))
            offset = np.maximum(location - starts[document] - document - 1, 0)
            return np.minimum(starts[document] + offset, starts[-1])
        document = np.searchsorted(self.first_rows, rows, "right") - 1
        document = np.minimum(document, len(starts) - 2)
        offset = (rows - self.first_rows[document]) * self.length
        return np.minimum(starts[document] + offset, starts[document + 1])


class StreamRows:
    """Rows of running text with end tokens, for causal prediction."""

    def __init__(
        self, sources: Sequence[TokenSource], weights: Sequence[float], length: int, end: int, *key: object, pack: bool
    ) -> None:
        self.sources, self.length, self.end, self.pack = sources, length, end, pack
        self.streams = [Stream.of(source.document_starts, length, pack=pack) for source in sources]
        self.blend = Blend([len(s) for s in self.streams], weights, *key)

    def __len__(self) -> int:
        return len(self.blend)

    def assembled(self, numbers: Ints) -> Assembled:
        """Return the rows of these numbers, [B, T + 1]; `inner` is False after the end of the text."""
        source, rows = self.blend.place(numbers)
        shape = (len(numbers), self.length + 1)
        tokens, inner = np.full(shape, self.end, np.int64), np.zeros(shape, np.bool_)
        documents, positions = np.zeros(shape, np.int32), np.zeros(shape, np.int64)
        for k in np.unique(source):
            at = source == k
            document, offset = self.streams[k].positions(rows[at])
            starts, last = self.sources[k].document_starts, document[:, :1]
            text = (offset > 0) & (document < len(starts) - 1)
            filled = tokens[at]
            filled[text] = self.sources[k].tokens[(starts[document] + offset - 1)[text]]
            tokens[at], documents[at] = filled, document - last + 1
            positions[at] = np.where(document == last, offset - offset[:, :1], offset)
            final = (document == len(starts) - 1) if self.pack else document > last
            inner[at] = ~final | (offset == 0)
        documents[~inner] = 0
        positions[~inner] = 0
        return Assembled(tokens, documents, positions, inner)

    def spans(self, numbers: Ints) -> list[Span]:
        spans = []
        for number, source, row in zip(numbers, *self.blend.place(numbers), strict=True):
            starts = self.sources[source].document_starts
            document, offset = (x[0] for x in self.streams[source].positions(np.asarray([row])))
            for d in np.unique(document[document < len(starts) - 1]):
                token = (starts[document] + offset - 1)[(document == d) & (offset > 0)]
                if len(token):
                    spans.append(Span(int(number), int(source), int(d), int(token[0]), int(token[-1]) + 1))
        return spans

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        source, rows = self.blend.place(numbers)
        return [(k, *self.streams[k].spans(rows[source == k])) for k in np.unique(source).tolist()]


def _pattern(weights: Sequence[float], key: int) -> tuple[NDArray[np.int32], Ints]:
    """Return a shuffled sequence of sources with frequencies by weight, and the frequencies.

    If a source is too rare for PATTERN rows, a sequence of FINE rows is used, in which every source occurs.
    """
    shares = np.asarray(weights, np.float64) / sum(weights)
    ends = np.rint(np.cumsum(shares) * PATTERN).astype(np.int64)
    counts: Ints = np.diff(ends, prepend=0)
    if not counts.all():
        counts = np.maximum(np.rint(shares * FINE).astype(np.int64), 1)
    pattern = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    return pattern[np.argsort(chance.bits(key, np.arange(len(pattern))), kind="stable")], counts
