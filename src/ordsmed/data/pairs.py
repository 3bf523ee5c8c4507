"""Pairs: rows of two segments, drawn again in each epoch: next sentence, sentence order, ELECTRA.

    number --Blend--> a source, and its running count --> epoch, group, position     arithmetic
    group = random blocks of documents --walk--> chunks of sentences --> examples    prepared in the background
    example --shorten--> [CLS] A A A [SEP] B B [SEP]                                 by the number of the row

An example is a range of tokens for each segment. All random choices are functions of the key, the epoch and the first
token of a chunk, or of the row's number. A row is the same in any batch, on any rank and after any restart.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.pair_examples import FRONT, SIDE, SPECIAL, PairExamples, Pairs, Style
from ordsmed.data.rows import Assembled, Blend, Span, TokenSource
from ordsmed.data.windows import Ints, run

LABELLED: tuple[Style, ...] = ("next", "order")  # have a label


@dataclass(frozen=True)
class TokenRanges:
    """Non-empty ranges of tokens, in the order of their positions in rows."""

    row: Ints  # index of the row in the batch
    side: Ints  # 0: first segment, 1: second
    start: Ints
    stop: Ints


class PairRows:
    """Rows of two segments from several stores.

    next: BERT's. A chunk is sentences up to a length that is drawn once per document. A is its first part. B is the
    rest (label 0), or sentences of another document (label 1); then the next chunk starts where A ended. Pairs that are
    too long lose tokens of the longer segment, at its front or back.

    order: ALBERT's. A and B are the two parts of a chunk, swapped half the time (label 1). A chunk of one sentence is
    extended by the next one, and a document's last sentence by the one before. Documents of one sentence are skipped.

    electra: sentences of a chunk go to the first segment until it is full, then to the second; a share `single` of
    chunks is one segment.

    Every epoch walks all documents, so its number of examples is known only afterwards. Instead, each group of blocks
    gives a fixed number of rows, estimated once by a trial. Additional examples are dropped in this epoch; missing ones
    come from a second walk with other random choices. A document longer than a block is walked as several.
    """

    def __init__(
        self,
        sources: Sequence[TokenSource],
        weights: Sequence[float],
        *,
        length: int,
        start: int,
        stop: int,
        pad: int,
        style: Style,
        short: float,
        single: float = 0.1,
        key: tuple[object, ...],
    ) -> None:
        if length < SPECIAL + 2:
            problem = f"found {length}, of which {SPECIAL} are special tokens"
            raise RecipeError("phase.length", problem, f"{SPECIAL + 2} or more")
        self.sources, self.style, self.length = sources, style, length
        self.start, self.stop, self.pad = start, stop, pad
        self.key = chance.key("pairs", *key)
        self.examples = [
            PairExamples(source, style, length, short, single, *key, index) for index, source in enumerate(sources)
        ]
        for index, examples in enumerate(self.examples):
            if not len(examples):
                problem = "has no document with two sentences" if style == "order" else "has no text"
                raise DataError(f"source {index + 1}", problem, "", "encode with sentences, or add text")
        self.blend = Blend([len(examples) for examples in self.examples], weights, *key)

    def __len__(self) -> int:
        return len(self.blend)

    def assembled(self, numbers: Ints) -> Assembled:
        parts, order = [], []
        for source, at, pair in self._examples(numbers):
            parts.append(self._lay(self.sources[source].tokens, self._pieces(source, pair, numbers[at]), pair))
            order.append(at)
        return Assembled.join(parts, order)

    def spans(self, numbers: Ints) -> list[Span]:
        spans: list[Span] = []
        for source, at, examples in self._examples(numbers):
            p = self._pieces(source, examples, numbers[at])
            new = (np.diff(p.row * 2 + p.side, prepend=-1) > 0) | (p.start != np.append(-1, p.stop[:-1]))
            first = np.flatnonzero(new)
            ends = p.stop[np.append(first[1:], len(new)) - 1]
            document = np.searchsorted(self.sources[source].document_starts, p.start[first], "right") - 1
            rows = numbers[at][p.row[first]]
            spans += [
                Span(int(n), source, int(d), int(a), int(b))
                for n, d, a, b in zip(rows, document, p.start[first], ends, strict=True)
            ]
        position = {int(number): index for index, number in enumerate(numbers)}
        return sorted(spans, key=lambda span: position[span.number])

    def ranges(self, numbers: Ints) -> list[tuple[int, Ints, Ints]]:
        pieces = ((k, self._pieces(k, pairs, numbers[at])) for k, at, pairs in self._examples(numbers))
        return [(k, piece.start, piece.stop) for k, piece in pieces]

    def _examples(self, numbers: Ints) -> Iterator[tuple[int, Ints, Pairs]]:
        source, count = self.blend.counted(numbers)
        for k in np.unique(source).tolist():
            at = np.flatnonzero(source == k)
            yield k, at, self.examples[k].take(count[at])

    def _pieces(self, source: int, examples: Pairs, numbers: Ints) -> TokenRanges:
        if self.style == "electra":
            return self._assign_segments(source, examples, numbers)
        start, stop = shorten(examples.start, examples.stop, self.length - SPECIAL, self.key, numbers)
        return TokenRanges(
            np.repeat(np.arange(len(examples)), 2), np.tile([0, 1], len(examples)), start.ravel(), stop.ravel()
        )

    def _assign_segments(self, source: int, examples: Pairs, numbers: Ints) -> TokenRanges:
        starts, begin, end = self.sources[source].starts, examples.start[:, 0], examples.stop[:, 0]
        low = np.searchsorted(starts, begin, "right") - 1
        counts = np.searchsorted(starts, end, "left") - low
        row, sentence = np.repeat(np.arange(len(examples)), counts), run(counts)
        start = starts[np.repeat(low, counts) + sentence]
        size = starts[np.repeat(low, counts) + sentence + 1] - start
        sizes = np.zeros((len(examples), int(counts.max(initial=1))), np.int64)
        sizes[row, sentence] = size
        side = deal(sizes, examples.mark, self.key, numbers)[row, sentence]
        order = np.argsort(row * 2 + side, kind="stable")
        row, side, start, size = row[order], side[order], start[order], size[order]
        before = _within(row * 2 + side, size)
        first = np.bincount(row[side == 0], size[side == 0], len(examples)).astype(np.int64)
        first = np.minimum(first, self.length - 2)
        room = np.where(side == 0, self.length - 2, self.length - SPECIAL - first[row])
        size = np.minimum(size, room - before)
        full = size > 0
        return TokenRanges(row[full], side[full], start[full], (start + size)[full])

    def _lay(self, source: NDArray[np.integer], pieces: TokenRanges, examples: Pairs) -> Assembled:
        rows, length, size = len(examples), self.length, pieces.stop - pieces.start
        slot = pieces.row * 2 + pieces.side
        sums = np.bincount(slot, size, 2 * rows).astype(np.int64).reshape(rows, 2)
        second = 2 + sums[:, 0]  # start of the second segment
        begin = np.where(pieces.side == 0, 1, second[pieces.row]) + _within(slot, size)
        within = run(size)
        index = np.repeat(pieces.row * length + begin, size) + within
        tokens, inner = np.full((rows, length), self.pad, np.int64), np.zeros((rows, length), np.bool_)
        tokens.flat[index], inner.flat[index] = source[np.repeat(pieces.start, size) + within], True
        two = np.flatnonzero(sums[:, 1])
        tokens[:, 0] = self.start
        tokens[np.arange(rows), second - 1] = self.stop
        tokens[two, (second + sums[:, 1])[two]] = self.stop
        used = second + np.where(sums[:, 1] > 0, sums[:, 1] + 1, 0)
        positions = np.arange(length)
        real = positions < used[:, None]
        types = (real & (positions >= second[:, None])).astype(np.int64)
        marks = None if self.style == "electra" else examples.mark
        return Assembled(tokens, real.astype(np.int32), np.where(real, positions, 0), inner, types=types, pairs=marks)


def shorten(start: Ints, stop: Ints, room: int, key: int, numbers: Ints) -> tuple[Ints, Ints]:
    """Truncate pairs of ranges [B, 2]: the longer one (if equal, the second) loses a token, at a random end.

    So the longer range shrinks to the length of the other, and then both lose tokens in turns.
    """
    size = stop - start
    over = np.maximum(size.sum(1, keepdims=True) - room, 0)
    alone = np.minimum(over, np.maximum(size - size[:, ::-1], 0))  # removed until both are equal
    lost = alone + (over - alone.sum(1, keepdims=True) + [0, 1]) // 2
    counts = lost.ravel()
    segment = np.repeat(np.arange(len(counts)), counts)
    coins = chance.bits(key, FRONT, numbers[segment // 2], segment % 2, run(counts)) & np.uint64(1)
    front = np.bincount(segment, coins.astype(np.float64), len(counts)).astype(np.int64).reshape(lost.shape)
    return start + front, stop - (lost - front)


def deal(sizes: Ints, full: Ints, key: int, numbers: Ints) -> Ints:
    """Assign each sentence of chunks [B, S] to a segment by ELECTRA's rule; `full`: target size of the first one.

    The first segment takes the first sentence and every sentence that leaves it below `full`. A sentence that would
    fill it is added with probability 1/2, as long as the second segment is empty.
    """
    side = np.zeros_like(sizes)
    first, second = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    for sentence in range(sizes.shape[1]):
        size = sizes[:, sentence]
        coin = chance.unit(key, SIDE, numbers, sentence) < 0.5
        fits = (first == 0) | (first + size < full) | ((second == 0) & (first < full) & coin)
        side[:, sentence] = ~fits
        first += np.where(fits, size, 0)
        second += np.where(fits, 0, size)
    return side


def _within(slot: Ints, size: Ints) -> Ints:
    begun = np.cumsum(size) - size
    return begun - begun[np.searchsorted(slot, slot)]
