"""Rows for ELMo: sentences in streams, where each row of a batch continues the same row of the previous batch.

    stream 0:  <S> the newts ran </S>|<S> away </S>|...        batch 0 holds the first window of every stream,
    stream 1:  <S> a pond </S>|<S> is full of them </S>|...    batch 1 the second, and so on

Row n is window n // batch of stream n % batch. Every word except the last special word of a sentence is an input, and
the next word is its target. A row holds both directions, first forward and then backward; the backward direction reads
each sentence from its end. In every epoch, blocks of neighboring sentences are shuffled, and sentences within blocks,
so that any window can be located directly.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import DataError, RecipeError
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.lexicon import Lexicon
from ordsmed.data.order import permute
from ordsmed.data.rows import Span, TokenSource
from ordsmed.data.windows import Ints, run

BLOCK = 8_192  # approximate number of words of a block, within which sentences are shuffled


class WordSource(TokenSource, Protocol):
    @property
    def lexicon(self) -> Lexicon | None:
        """Return the lexicon of all words."""


@dataclass(frozen=True)
class SpecialWords:
    start: int
    stop: int
    unknown: int
    vocabulary: int  # words from this number on have the target `unknown`


class StreamOrder:
    """The sentences of one store in the order of one epoch and direction, as one sequence of words."""

    def __init__(
        self, source: TokenSource, special: SpecialWords, *, backward: bool, kept: int, key: tuple[object, ...]
    ) -> None:
        self.source, self.special, self.backward, self.kept, self.key = source, special, backward, kept, key
        starts = source.starts
        wanted = np.searchsorted(starts, np.arange(0, int(starts[-1]), BLOCK))
        self.firsts = np.unique(np.append(wanted, len(starts) - 1))  # the first sentence of each block
        self.sizes = np.diff(starts[self.firsts]) + np.diff(
            self.firsts
        )  # inputs of a block: the words and one special word of each sentence
        self.words = int(self.sizes.sum())
        self._blocks: OrderedDict[tuple[int, int], NDArray[np.int32]] = OrderedDict()  # the last `kept` blocks
        self._order: tuple[int, Ints, Ints] | None = None  # of the last epoch

    def read(self, epoch: int, position: int, count: int) -> tuple[Ints, Ints]:
        """Return `count` words of the sequence from `position` and the word after each; fewer at the end."""
        first, last = (
            (self.special.stop, self.special.start) if self.backward else (self.special.start, self.special.stop)
        )
        read, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for block, inside, size in self._ranges(epoch, position, count):
            line = self._block_words(epoch, block)[inside : inside + size + 1].astype(np.int64)
            following = np.append(line[1:], first)[:size]
            read.append(line[:size])
            targets.append(
                np.where(following == first, last, following)
            )  # the input has a special word only at the start of a sentence
        return np.concatenate(read), np.concatenate(targets)

    def sentences(self, epoch: int, position: int, count: int) -> list[int]:
        numbers = []
        for block, inside, size in self._ranges(epoch, position, count):
            chosen = self._shuffled(epoch, block)
            ends = np.cumsum(self.source.starts[chosen + 1] - self.source.starts[chosen] + 1)
            a, b = np.searchsorted(ends, [inside, inside + size - 1], "right")
            numbers += chosen[a : b + 1].tolist()
        return numbers

    def _ranges(self, epoch: int, position: int, count: int) -> Iterator[tuple[int, int, int]]:
        if self._order is None or self._order[0] != epoch:
            order = permute(np.arange(len(self.sizes)), len(self.sizes), chance.key("blocks", *self.key, epoch))
            self._order = (epoch, order, np.cumsum(self.sizes[order]))
        _, order, ends = self._order
        index = int(np.searchsorted(ends, position, "right"))
        while count and index < len(order):
            size = min(count, int(ends[index]) - position)
            block = int(order[index])
            yield block, position - int(ends[index] - self.sizes[block]), size
            position, count, index = position + size, count - size, index + 1

    def _shuffled(self, epoch: int, block: int) -> Ints:
        first, last = self.firsts[block : block + 2].tolist()
        return first + permute(np.arange(last - first), last - first, chance.key("sentences", *self.key, epoch, block))

    def _block_words(self, epoch: int, block: int) -> NDArray[np.int32]:
        if (epoch, block) not in self._blocks:
            self._blocks[epoch, block] = self._words_of(self._shuffled(epoch, block))
            if len(self._blocks) > self.kept:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end((epoch, block))
        return self._blocks[epoch, block]

    def _words_of(self, chosen: Ints) -> NDArray[np.int32]:
        starts = self.source.starts[chosen]
        lengths = self.source.starts[chosen + 1] - starts
        within = run(lengths)
        if self.backward:
            within = np.repeat(lengths, lengths) - 1 - within
        ends = np.cumsum(lengths + 1)
        text = np.ones(ends[-1], np.bool_)
        text[ends - lengths - 1] = False
        line = np.full(len(text), self.special.stop if self.backward else self.special.start, np.int32)
        line[text] = self.source.tokens[np.repeat(starts, lengths) + within]
        return line


class CarriedRows:
    """Windows of streams in both directions, with the characters of their words."""

    def __init__(
        self,
        sources: Sequence[WordSource],
        weights: Sequence[float],
        special: SpecialWords,
        *key: object,
        length: int,
        batch: int,
        together: bool,
        whole: bool,
    ) -> None:
        """`together`: both directions read the same sentences in a window.

        `whole`: include every word, as validation needs; rows may then not be full.
        """
        self.sources, self.special, self.length, self.count = sources, special, length, batch
        self.source_of = _shared(weights, batch)  # source of each stream
        streams = np.bincount(self.source_of, minlength=len(sources))

        def order(k: int, backward: bool) -> StreamOrder:
            parts = (*key, k, "backward" if backward and not together else "")
            return StreamOrder(sources[k], special, backward=backward, kept=2 * int(streams[k]), key=parts)

        self.ways = [[order(k, backward) for backward in (False, True)] for k in range(len(sources))]
        before = np.cumsum(streams) - streams  # number of streams of earlier sources
        self.within = np.arange(batch) - before[self.source_of]  # number of each stream within its source
        words = np.asarray([ways[0].words for ways in self.ways])
        if not words.all():
            raise DataError(f"source {int(words.argmin()) + 1}", "has no words", "", "add text")
        full, self.whole = words / (streams * length), whole
        self.windows = np.maximum(np.ceil(full) if whole else np.floor(full), 1).astype(np.int64)  # per stream, epoch

    def __len__(self) -> int:
        if self.whole:  # until the longest source ends
            return int(self.windows.max()) * self.count
        return int(self.windows[self.source_of].sum())

    def batch(self, numbers: Ints) -> Batch:
        shape = (len(numbers), 2 * self.length)
        read, following = np.full(shape, self.special.start, np.int64), np.zeros(shape, np.int64)
        weights = np.zeros(shape, np.float32)
        streams, windows = numbers % self.count, numbers // self.count
        sources = self.source_of[streams]
        for row in range(len(numbers)):
            if self.whole and windows[row] >= self.windows[sources[row]]:
                continue
            for way, order in enumerate(self.ways[sources[row]]):
                words, after = order.read(*self._place(streams[row], windows[row]), self.length)
                at = slice(way * self.length, way * self.length + len(words))
                read[row, at], following[row, at], weights[row, at] = words, after, 1
        steps = windows[:, None] * self.length + np.tile(np.arange(self.length), 2)
        tokens, characters, words = self._spelled(read, sources)
        targets = np.where(following < self.special.vocabulary, following, self.special.unknown)
        predicted: dict[str, np.ndarray] = {"targets": targets, "weights": weights}
        carried: dict[str, np.ndarray] = {"streams": streams, "characters": characters, "words": words}
        return batch_of(numbers=numbers, tokens=tokens, positions=steps, **predicted, **carried)

    def spans(self, numbers: Ints) -> list[Span]:
        spans: list[Span] = []
        for number in numbers:
            stream, window = number % self.count, number // self.count
            k = int(self.source_of[stream])
            starts, documents = self.sources[k].starts, self.sources[k].document_starts
            for order in self.ways[k]:
                for sentence in order.sentences(*self._place(stream, window), self.length):
                    document = int(np.searchsorted(documents, starts[sentence], "right")) - 1
                    span = Span(int(number), k, document, int(starts[sentence]), int(starts[sentence + 1]))
                    if span not in spans:
                        spans.append(span)
        return spans

    def _place(self, stream: int, window: int) -> tuple[int, int]:
        windows = int(self.windows[self.source_of[stream]])
        epoch, inside = divmod(int(window), windows)
        return epoch, (int(self.within[stream]) * windows + inside) * self.length

    def _spelled(self, words: Ints, sources: Ints) -> tuple[Ints, NDArray[np.uint8], Ints]:
        """Return words as indices into the list of different words, and the list's characters and starts.

        The list has <S> and </S> first and is sorted by length.
        """
        marked = words + (sources.astype(np.int64) << 32)[:, None]
        marked[words == self.special.start], marked[words == self.special.stop] = -2, -1
        different, indexes = np.unique(marked, return_inverse=True)
        specials = int(np.searchsorted(different, 0))
        source, number = different[specials:] >> 32, different[specials:] & 0xFFFFFFFF
        begin, size = np.empty_like(number), np.empty_like(number)
        for k in range(len(self.sources)):
            of = source == k
            starts = self._lexicon(k).starts
            if len(number[of]) and int(number[of].max()) >= len(starts) - 1:
                problem = f"holds the word {int(number[of].max())}, its lexicon {len(starts) - 1:,}"
                raise DataError(f"source {k + 1}", problem, "its own lexicon", "copy or encode it again")
            begin[of] = starts[number[of]]
            size[of] = starts[number[of] + 1] - begin[of]
        order = np.argsort(size, kind="stable")
        at = np.repeat(begin[order], size[order]) + run(size[order])
        characters, source_of_character = np.empty(len(at), np.uint8), np.repeat(source[order], size[order])
        for k in range(len(self.sources)):
            characters[source_of_character == k] = self._lexicon(k).characters[at[source_of_character == k]]
        rank = np.empty(len(different), np.int64)
        rank[:specials] = different[:specials] + 2
        rank[specials:][order] = np.arange(len(order)) + 2
        return rank[indexes.reshape(words.shape)], characters, np.concatenate([[0, 0, 0], np.cumsum(size[order])])

    def _lexicon(self, k: int) -> Lexicon:
        lexicon = self.sources[k].lexicon
        if lexicon is None:
            raise DataError(f"source {k + 1}", "has subword tokens", "whole words", 'encode with `kind = "words"`')
        return lexicon


def _shared(weights: Sequence[float], streams: int) -> Ints:
    """Return the source of each stream: streams in proportion to the weights, at least one per source."""
    if not all(0 < weight < float("inf") for weight in weights):
        raise RecipeError("data", f"found weights {', '.join(map(str, weights))}", "weights above 0")
    if streams < len(weights):
        problem = f"found {streams} streams for {len(weights)} sources"
        raise RecipeError("batch", problem, "at least one stream per source")
    share = np.asarray(weights, np.float64) / sum(weights)
    ends = np.rint(np.cumsum(share) * (streams - len(weights))).astype(np.int64)
    return np.repeat(np.arange(len(weights)), np.diff(ends, prepend=0) + 1)
