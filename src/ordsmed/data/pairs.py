"""Pairs: rows of two segments, drawn anew each epoch: next sentences, their order, ELECTRA's examples.

    number --Blend--> a source, and its running count --> epoch, group, place        arithmetic
    group = random blocks of documents --walk--> chunks of sentences --> examples    made ahead, in the background
    example --shorten--> [CLS] A A A [SEP] B B [SEP]                                 by the number of the row

An example is a range of tokens for each segment. All chance is a function of the key, the epoch and the token a chunk
begins with, or of the row's number: a row is the same in any batch, on any rank and after any restart.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.order import permute
from ordsmed.data.rows import Assembled, Blend, Span, TokenSource
from ordsmed.data.windows import Ints, run

Style = Literal["next", "order", "electra"]
LABELLED: tuple[Style, ...] = ("next", "order")  # say how their segments belong together
BLOCK = 1 << 12  # sentences of a block; documents up to this long are whole, longer ones are cut at multiples of it
GROUP = 128  # blocks whose examples are shuffled together, at least
TRIAL = 32  # blocks by which the examples of a group are estimated
TRIES = 10  # draws for another document that holds text
SPECIAL = 3  # [CLS] [SEP] [SEP]
WHOLE = 1 << 40  # a first segment that is never full
SHORT, AIM, SPLIT, COIN, DOCUMENT, SENTENCE, SINGLE, FRONT, SIDE = range(9)  # uses of chance, so that none share bits


@dataclass(frozen=True)
class Pairs:
    """Examples as ranges of tokens; for ELECTRA the first range is the whole chunk, the second empty."""

    start: Ints  # [N, 2]
    stop: Ints  # [N, 2]
    mark: Ints  # [N]  next, order: the label; electra: how many tokens fill the first segment

    def __len__(self) -> int:
        return len(self.mark)

    def take(self, indexes: Ints) -> Pairs:
        """Those at these places, in this order."""
        return Pairs(self.start[indexes], self.stop[indexes], self.mark[indexes])

    @staticmethod
    def join(parts: Sequence[Pairs]) -> Pairs:
        """All of them, one after the other."""
        return Pairs(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("start", "stop", "mark")))


NONE = Pairs(np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class TokenRanges:
    """Ranges of tokens in the order in which they stand in rows, none empty."""

    row: Ints  # which of the asked rows
    side: Ints  # 0: first segment, 1: second
    start: Ints
    stop: Ints


@dataclass(frozen=True)
class BlockSentences:
    """The sentences of a block that hold something."""

    starts: Ints  # [N + 1]  token each begins with; last = end of the block
    document: Ints  # [N]  which document of the store
    first: Ints  # [N]  the first sentence of its document here
    last: Ints  # [N]  the one after its document's last here

    def reach(self, aim: Ints) -> Ints:
        """For a chunk from each sentence on: the sentence it ends before, having so many tokens or all that is left."""
        return np.minimum(np.searchsorted(self.starts, self.starts[:-1] + aim), self.last)


class PairRows:
    """Rows of two segments from several stores.

    next: BERT's. A chunk is sentences up to a length that is drawn once a document; A is a part of it from its
        beginning. B is the rest (label 0), or sentences of another document (label 1), and then the next chunk begins
        where A ended. Too long pairs lose tokens of the longer segment, at its front or back.
    order: ALBERT's. A and B are always the two parts of a chunk, swapped half the time (label 1). A chunk of one
        sentence takes in the next one, a document's last sentence alone the one before it; documents of one sentence
        are left out.
    electra: a chunk's sentences go to the first segment until it is full, then to the second; a share `single` of
        chunks is one segment.

    Every epoch walks all documents, so how many examples it has is known only afterwards. Each group of blocks gives a
    fixed number of rows instead, estimated once from a trial: what a group has more is left out this epoch, what it
    lacks comes from a second walk with other chance. A document longer than a block is walked as several.
    """

    def __init__(
        self, sources: Sequence[TokenSource], weights: Sequence[float], *, length: int, start: int, stop: int, pad: int,
        style: Style, short: float, single: float = 0.1, key: tuple[object, ...],
    ) -> None:  # fmt: skip
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
                problem = "has no document of two sentences" if style == "order" else "has no text"
                raise DataError(f"source {index + 1}", problem, "", "encode with sentences, or add text")
        self.blend = Blend([len(examples) for examples in self.examples], weights, *key)

    def __len__(self) -> int:
        return len(self.blend)

    def assembled(self, numbers: Ints) -> Assembled:
        """The rows with these running numbers, before corruption."""
        parts, order = [], []
        for source, at, pair in self._examples(numbers):
            parts.append(self._lay(self.sources[source].tokens, self._pieces(source, pair, numbers[at]), pair))
            order.append(at)
        if len(parts) == 1:
            return parts[0]
        back, names = np.argsort(np.concatenate(order)), ["tokens", "documents", "positions", "inner", "types"]
        names += ["pairs"] * (self.style != "electra")
        return Assembled(**{name: np.concatenate([getattr(m, name) for m in parts])[back] for name in names})

    def spans(self, numbers: Ints) -> list[Span]:
        """Which documents these rows hold; a segment of sentences that do not follow each other has several spans."""
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
        place = {int(number): index for index, number in enumerate(numbers)}
        return sorted(spans, key=lambda span: place[span.number])

    def _examples(self, numbers: Ints) -> Iterator[tuple[int, Ints, Pairs]]:
        """Each source that is asked for, which of the numbers, and their examples."""
        source, count = self.blend.counted(numbers)
        for k in np.unique(source).tolist():
            at = np.flatnonzero(source == k)
            yield k, at, self.examples[k].take(count[at])

    def _pieces(self, source: int, examples: Pairs, numbers: Ints) -> TokenRanges:
        if self.style == "electra":
            return self._dealt(source, examples, numbers)
        start, stop = shorten(examples.start, examples.stop, self.length - SPECIAL, self.key, numbers)
        return TokenRanges(
            np.repeat(np.arange(len(examples)), 2), np.tile([0, 1], len(examples)), start.ravel(), stop.ravel()
        )

    def _dealt(self, source: int, examples: Pairs, numbers: Ints) -> TokenRanges:
        """ELECTRA's segments: the sentences of each chunk dealt out, what does not fit cut off."""
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
        """Rows of both segments between special tokens; a segment without tokens has no [SEP]."""
        rows, length, size = len(examples), self.length, pieces.stop - pieces.start
        slot = pieces.row * 2 + pieces.side
        sums = np.bincount(slot, size, 2 * rows).astype(np.int64).reshape(rows, 2)
        second = 2 + sums[:, 0]  # where the second segment begins
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
        return Assembled(
            tokens,
            real.astype(np.int32),
            np.where(real, positions, 0),
            inner,
            types=(real & (positions >= second[:, None])).astype(np.int64),
            pairs=None if self.style == "electra" else examples.mark,
        )


class PairExamples:
    """The examples of one source by their running count, an epoch after the other."""

    def __init__(
        self, source: TokenSource, style: Style, length: int, short: float, single: float, *key: object
    ) -> None:
        self.source, self.style, self.length, self.short, self.single, self.key = (
            source, style, length, short, single, key,
        )  # fmt: skip
        self.sentences = len(source.starts) - 1
        self.blocks = max(1, -(-self.sentences // BLOCK))
        self.groups = max(1, self.blocks // GROUP)
        self.share = self._expected()  # rows of a group
        self._ahead = Ahead(self.group)

    def __len__(self) -> int:
        """Examples an epoch."""
        return self.groups * self.share

    def take(self, counts: Ints) -> Pairs:
        """The examples with these running counts."""
        groups, indexes = counts // self.share, counts % self.share
        wanted = np.unique(groups).tolist()
        order = np.concatenate([np.flatnonzero(groups == group) for group in wanted])
        pairs = Pairs.join([self._ahead(group).take(indexes[groups == group]) for group in wanted])
        return pairs.take(np.argsort(order))

    def group(self, number: int) -> Pairs:
        """The examples of a group, counted over all epochs, in their order."""
        epoch, group = divmod(number, self.groups)
        numbers = np.arange(group * self.blocks // self.groups, (group + 1) * self.blocks // self.groups)
        blocks = permute(numbers, self.blocks, chance.key("blocks", *self.key, epoch))
        pairs, again = self.walk(blocks, "walk", epoch, group, 0), 0
        while (lack := self.share - len(pairs)) > 0:
            again += 1
            few = 1 + lack * len(blocks) // max(len(pairs), 1)  # enough of them, as a rule
            more = self.walk(np.roll(blocks, -again)[:few], "walk", epoch, group, again)
            wanted = np.arange(min(lack, len(more)))
            key = chance.key("lack", *self.key, epoch, group, again)
            pairs = Pairs.join([pairs, more.take(permute(wanted, len(more), key))])
            blocks = blocks if len(pairs) else (blocks + 1) % self.blocks
        key = chance.key("shuffle", *self.key, epoch, group)
        return pairs.take(permute(np.arange(self.share), len(pairs), key))

    def walk(self, blocks: Ints, *parts: object) -> Pairs:
        """All examples of some blocks, with the chance that belongs to these parts of a key."""
        key = chance.key(*self.key, *parts)
        make = {"next": self._next, "order": self._order, "electra": self._electra}[self.style]
        borders = zip(self._border(blocks).tolist(), self._border(blocks + 1).tolist(), strict=True)
        pairs = Pairs.join([NONE, *(make(s, key) for a, b in borders if (s := self._sentences(a, b)) is not None)])
        return self._elsewhere(pairs, key) if self.style == "next" else pairs

    def _expected(self) -> int:
        """Examples of an average group, from the walk over some blocks from all parts of the store."""
        count = min(self.blocks, TRIAL)
        blocks = np.arange(count) * self.blocks // count
        starts = self.source.starts
        walked = int((starts[self._border(blocks + 1)] - starts[self._border(blocks)]).sum())
        pair_count = len(self.walk(blocks, "trial"))
        return max(1, int(pair_count * (int(starts[-1]) / walked) / self.groups)) if pair_count else 0

    def _border(self, blocks: Ints) -> Ints:
        """The sentence each block begins with: the first document's that begins in it, else where it would be cut."""
        starts, documents = self.source.starts, self.source.document_starts
        grid = np.minimum(blocks * BLOCK, self.sentences)
        begin = documents[np.searchsorted(documents, starts[grid])]
        sentence = np.maximum(np.searchsorted(starts, begin), grid)
        return np.where(sentence < grid + BLOCK, sentence, grid)

    def _sentences(self, first: int, last: int) -> BlockSentences | None:
        starts = np.asarray(self.source.starts[first : last + 1], np.int64)
        starts = starts[np.append(np.diff(starts) > 0, True)]  # stores made elsewhere may hold empty sentences
        if len(starts) < 2:
            return None
        document = np.searchsorted(self.source.document_starts, starts[:-1], "right") - 1
        return BlockSentences(
            starts, document, np.searchsorted(document, document), np.searchsorted(document, document, "right")
        )

    def _aims(self, counter: Ints, least: int, most: int, key: int) -> Ints:
        """The length chunks are made for: the most, or for a share of them anything from the least on."""
        drawn = least + _draw(key, AIM, counter, most - least + 1)
        return np.where(chance.unit(key, SHORT, counter) < self.short, drawn, most)

    def _next(self, sentences: BlockSentences, key: int) -> Pairs:
        starts, place = sentences.starts, np.arange(len(sentences.document))
        aim = self._aims(sentences.document, 2, self.length - SPECIAL, key)
        end = sentences.reach(aim)
        middle = place + 1 + _draw(key, SPLIT, starts[:-1], np.maximum(end - place - 1, 1))
        elsewhere = (end - place == 1) | (chance.unit(key, COIN, starts[:-1]) < 0.5)
        at = follow(np.where(elsewhere, middle, end))
        begin, stop = np.stack([starts[at], starts[middle[at]]], 1), np.stack([starts[middle[at]], starts[end[at]]], 1)
        return Pairs(begin, stop, elsewhere[at].astype(np.int64))

    def _elsewhere(self, examples: Pairs, key: int) -> Pairs:
        """Where the label is 1, B from another document: from a random sentence on until the aim is reached."""
        starts, borders = self.source.starts, self.source.document_starts
        far = np.flatnonzero(examples.mark)
        counter = examples.start[far, 0]
        document = np.searchsorted(borders, counter, "right") - 1
        drawn, left = self._other_documents(document, counter, key), self._aims(document, 2, self.length - SPECIAL, key)
        left = np.maximum(left - (examples.stop[far, 0] - counter), 1)  # at least one sentence
        order = np.argsort(drawn)  # neighbors are found much faster
        far, drawn, left, counter = far[order], drawn[order], left[order], counter[order]
        end = borders[drawn + 1]
        low, high = np.searchsorted(starts, borders[drawn], "right") - 1, np.searchsorted(starts, end)
        begin = starts[low + _draw(key, SENTENCE, counter, high - low)]
        begin = np.where(begin < end, begin, borders[drawn])  # only empty sentences are left
        examples.start[far, 1] = begin
        examples.stop[far, 1] = starts[np.searchsorted(starts, np.minimum(begin + left, end))]
        return examples

    def _other_documents(self, document: Ints, counter: Ints, key: int) -> Ints:
        """Any document that holds text, but not the own one, unless there is hardly another."""
        borders, drawn = self.source.document_starts, document.copy()
        count = len(borders) - 2
        left = np.arange(len(document) if count > 0 else 0)
        for attempt in range(TRIES):
            number = _draw(key, DOCUMENT, counter[left], count, attempt)
            number += number >= document[left]
            filled = borders[number] < borders[number + 1]
            drawn[left[filled]] = number[filled]
            left = left[~filled]
            if not len(left):
                break
        return drawn

    def _order(self, sentences: BlockSentences, key: int) -> Pairs:
        starts, place = sentences.starts, np.arange(len(sentences.document))
        aim = self._aims(sentences.document, 2, self.length - SPECIAL, key)
        end = np.maximum(sentences.reach(aim), np.minimum(place + 2, sentences.last))
        begin = np.where(end - place == 1, np.maximum(place - 1, sentences.first), place)
        at = follow(end)
        at = at[end[at] - begin[at] > 1]
        begin, end = begin[at], end[at]
        middle = begin + 1 + _draw(key, SPLIT, starts[at], end - begin - 1)
        swapped = chance.unit(key, COIN, starts[at]) < 0.5
        borders = np.stack([starts[begin], starts[middle], starts[end]], 1)
        first = np.where(swapped[:, None], borders[:, [1, 0]], borders[:, :2])
        last = np.where(swapped[:, None], borders[:, [2, 1]], borders[:, 1:])
        return Pairs(first, last, swapped.astype(np.int64))

    def _electra(self, sentences: BlockSentences, key: int) -> Pairs:
        starts = sentences.starts
        aim = self._aims(starts[:-1], SPECIAL + 2, self.length, key)
        end = sentences.reach(aim)
        at = follow(end)
        whole = chance.unit(key, SINGLE, starts[at]) < self.single
        nothing = starts[end[at]]
        return Pairs(
            np.stack([starts[at], nothing], 1),
            np.stack([nothing, nothing], 1),
            np.where(whole, WHOLE, (aim[at] - SPECIAL) // 2),
        )


class Ahead:
    """What is made of one number after the other: the last ones are kept, the next is made in the background."""

    def __init__(self, make: Callable[[int], Pairs]) -> None:
        self.make, self._process = make, os.getpid()
        self._made: dict[int, Future[Pairs]] = {}

    def __reduce__(self) -> tuple[type[Ahead], tuple[Callable[[int], Pairs]]]:
        return Ahead, (self.make,)  # what was made, and is being made, stays in its process

    def __call__(self, number: int) -> Pairs:
        if self._process != os.getpid():  # forked: the threads are not here
            self._process, self._made = os.getpid(), {}
        if number not in self._made:
            self._made[number] = Future()
            _fulfil(self._made[number], self.make, number)
        self._made = {n: future for n, future in self._made.items() if abs(n - number) <= 1}
        pairs = self._made[number].result()
        if number + 1 not in self._made:
            after = self._made[number + 1] = Future()
            threading.Thread(target=_fulfil, args=(after, self.make, number + 1), daemon=True).start()
        return pairs


def follow(after: Ints) -> Ints:
    """The sentences that chunks begin with, where `after` says which comes after a chunk from each."""
    successors, place, visited = after.tolist(), 0, []
    while place < len(successors):
        visited.append(place)
        place = successors[place]
    return np.asarray(visited, np.int64)


def shorten(start: Ints, stop: Ints, room: int, key: int, numbers: Ints) -> tuple[Ints, Ints]:
    """Pairs of ranges, [B, 2], made to fit: a token is always lost by the longer (the second if equal), at either end.

    So the longer comes down to the other first, then they lose in turns, and a coin falls for every token.
    """
    size = stop - start
    over = np.maximum(size.sum(1, keepdims=True) - room, 0)
    alone = np.minimum(over, np.maximum(size - size[:, ::-1], 0))  # lost before they are equal
    lost = alone + (over - alone.sum(1, keepdims=True) + [0, 1]) // 2
    counts = lost.ravel()
    segment = np.repeat(np.arange(len(counts)), counts)
    coins = chance.bits(key, FRONT, numbers[segment // 2], segment % 2, run(counts)) & np.uint64(1)
    front = np.bincount(segment, coins.astype(np.float64), len(counts)).astype(np.int64).reshape(lost.shape)
    return start + front, stop - (lost - front)


def deal(sizes: Ints, full: Ints, key: int, numbers: Ints) -> Ints:
    """ELECTRA's rule: which segment each sentence of chunks, [B, S], goes to; the first is filled before `full`.

    The first sentence goes to the first segment, and so does whatever leaves it below full; the one that would fill it
    goes there if a coin says so, and only as long as the second has nothing.
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


def _draw(key: int, use: int, counter: Ints, limit: Ints | int, *more: int) -> Ints:
    """Whole numbers from 0 on, below the limit."""
    return (chance.unit(key, use, counter, *more) * limit).astype(np.int64)


def _within(slot: Ints, size: Ints) -> Ints:
    """How much stands before each piece in its slot; slots in rising order."""
    begun = np.cumsum(size) - size
    return begun - begun[np.searchsorted(slot, slot)]


def _fulfil(promise: Future[Pairs], make: Callable[[int], Pairs], number: int) -> None:
    """Make it and keep the promise; what goes wrong shows where the result is asked for."""
    try:
        promise.set_result(make(number))
    except BaseException as error:
        promise.set_exception(error)
