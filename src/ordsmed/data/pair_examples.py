"""Examples of pairs: chunks of sentences split into two segments; every epoch walks the documents in another order.

    group = random blocks of documents --walk--> chunks of sentences --> examples    prepared in the background

An example is a range of tokens for each segment. All random choices are functions of the key, the epoch and the first
token of a chunk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ordsmed.base import chance
from ordsmed.data.order import permute
from ordsmed.data.rows import TokenSource
from ordsmed.data.windows import Ints

Style = Literal["next", "order", "electra"]
BLOCK = 1 << 12  # sentences of a block; longer documents are cut at multiples of it
GROUP = 128  # minimum number of blocks whose examples are shuffled together
TRIAL = 32  # blocks for estimating the number of examples of a group
TRIES = 10  # draws for another document that has text
SPECIAL = 3  # [CLS] [SEP] [SEP]
WHOLE = 1 << 40  # size of a first segment that takes the complete chunk
SHORT, AIM, SPLIT, COIN, DOCUMENT, SENTENCE, SINGLE, FRONT, SIDE = range(9)  # random choices, each with different bits


@dataclass(frozen=True)
class Pairs:
    """Examples as ranges of tokens; for ELECTRA the first range is the complete chunk and the second is empty."""

    start: Ints  # [N, 2]
    stop: Ints  # [N, 2]
    mark: Ints  # [N]  next, order: the label; electra: how many tokens fill the first segment

    def __len__(self) -> int:
        return len(self.mark)

    def take(self, indexes: Ints) -> Pairs:
        return Pairs(self.start[indexes], self.stop[indexes], self.mark[indexes])

    @staticmethod
    def join(parts: Sequence[Pairs]) -> Pairs:
        return Pairs(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("start", "stop", "mark")))


NONE = Pairs(np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class BlockSentences:
    """The non-empty sentences of a block."""

    starts: Ints  # [N + 1]  first token of each; last = end of the block
    document: Ints  # [N]  document in the store
    first: Ints  # [N]  first sentence of its document in the block
    last: Ints  # [N]  end (exclusive) of its document in the block

    def reach(self, aim: Ints) -> Ints:
        """Return the end (exclusive) of a chunk of at least `aim` tokens from each sentence, within its document."""
        return np.minimum(np.searchsorted(self.starts, self.starts[:-1] + aim), self.last)


class PairExamples:
    def __init__(
        self, source: TokenSource, style: Style, length: int, short: float, single: float, *key: object
    ) -> None:
        self.source, self.style, self.length = source, style, length
        self.short, self.single, self.key = short, single, key
        self.sentences = len(source.starts) - 1
        self.blocks = max(1, -(-self.sentences // BLOCK))
        self.groups = max(1, self.blocks // GROUP)
        self.share = self._expected()  # examples of a group
        self._ahead = Ahead(self.group)

    def __len__(self) -> int:
        return self.groups * self.share

    def take(self, counts: Ints) -> Pairs:
        groups, indexes = counts // self.share, counts % self.share
        wanted = np.unique(groups).tolist()
        order = np.concatenate([np.flatnonzero(groups == group) for group in wanted])
        pairs = Pairs.join([self._ahead(group).take(indexes[groups == group]) for group in wanted])
        return pairs.take(np.argsort(order))

    def group(self, number: int) -> Pairs:
        epoch, group = divmod(number, self.groups)
        numbers = np.arange(group * self.blocks // self.groups, (group + 1) * self.blocks // self.groups)
        blocks = permute(numbers, self.blocks, chance.key("blocks", *self.key, epoch))
        pairs, again = self.walk(blocks, "walk", epoch, group, 0), 0
        while (lack := self.share - len(pairs)) > 0:
            again += 1
            few = 1 + lack * len(blocks) // max(len(pairs), 1)  # usually enough
            more = self.walk(np.roll(blocks, -again)[:few], "walk", epoch, group, again)
            wanted = np.arange(min(lack, len(more)))
            key = chance.key("lack", *self.key, epoch, group, again)
            pairs = Pairs.join([pairs, more.take(permute(wanted, len(more), key))])
            blocks = blocks if len(pairs) else (blocks + 1) % self.blocks
        key = chance.key("shuffle", *self.key, epoch, group)
        return pairs.take(permute(np.arange(self.share), len(pairs), key))

    def walk(self, blocks: Ints, *parts: object) -> Pairs:
        key = chance.key(*self.key, *parts)
        make = {"next": self._next, "order": self._order, "electra": self._electra}[self.style]
        borders = zip(self._first_sentences(blocks).tolist(), self._first_sentences(blocks + 1).tolist(), strict=True)
        pairs = Pairs.join([NONE, *(make(s, key) for a, b in borders if (s := self._sentences(a, b)) is not None)])
        return self._from_other_documents(pairs, key) if self.style == "next" else pairs

    def _expected(self) -> int:
        count = min(self.blocks, TRIAL)
        blocks = np.arange(count) * self.blocks // count
        starts = self.source.starts
        walked = int((starts[self._first_sentences(blocks + 1)] - starts[self._first_sentences(blocks)]).sum())
        pair_count = len(self.walk(blocks, "trial"))
        return max(1, int(pair_count * (int(starts[-1]) / walked) / self.groups)) if pair_count else 0

    def _first_sentences(self, blocks: Ints) -> Ints:
        """Return the first sentence of each block: that of its first document, or a cut within a long document."""
        starts, documents = self.source.starts, self.source.document_starts
        grid = np.minimum(blocks * BLOCK, self.sentences)
        begin = documents[np.searchsorted(documents, starts[grid])]
        sentence = np.maximum(np.searchsorted(starts, begin), grid)
        return np.where(sentence < grid + BLOCK, sentence, grid)

    def _sentences(self, first: int, last: int) -> BlockSentences | None:
        starts = np.asarray(self.source.starts[first : last + 1], np.int64)
        starts = starts[np.append(np.diff(starts) > 0, True)]  # stores of other programs may have empty sentences
        if len(starts) < 2:
            return None
        document = np.searchsorted(self.source.document_starts, starts[:-1], "right") - 1
        return BlockSentences(
            starts, document, np.searchsorted(document, document), np.searchsorted(document, document, "right")
        )

    def _aims(self, counter: Ints, least: int, most: int, key: int) -> Ints:
        """Return the target lengths of chunks: `most`, or for a share of them random from `least` to `most`."""
        drawn = least + _draw(key, AIM, counter, most - least + 1)
        return np.where(chance.unit(key, SHORT, counter) < self.short, drawn, most)

    def _next(self, sentences: BlockSentences, key: int) -> Pairs:
        starts, position = sentences.starts, np.arange(len(sentences.document))
        end = sentences.reach(self._aims(sentences.document, 2, self.length - SPECIAL, key))
        middle = position + 1 + _draw(key, SPLIT, starts[:-1], np.maximum(end - position - 1, 1))
        elsewhere = (end - position == 1) | (chance.unit(key, COIN, starts[:-1]) < 0.5)
        at = chunk_starts(np.where(elsewhere, middle, end))
        begin, stop = np.stack([starts[at], starts[middle[at]]], 1), np.stack([starts[middle[at]], starts[end[at]]], 1)
        return Pairs(begin, stop, elsewhere[at].astype(np.int64))

    def _from_other_documents(self, examples: Pairs, key: int) -> Pairs:
        """For label 1, replace B by sentences of another document, from a random one until the target length."""
        starts, borders = self.source.starts, self.source.document_starts
        far = np.flatnonzero(examples.mark)
        counter = examples.start[far, 0]
        document = np.searchsorted(borders, counter, "right") - 1
        drawn, left = self._other_documents(document, counter, key), self._aims(document, 2, self.length - SPECIAL, key)
        left = np.maximum(left - (examples.stop[far, 0] - counter), 1)  # at least one sentence
        order = np.argsort(drawn)  # searching in order is much faster
        far, drawn, left, counter = far[order], drawn[order], left[order], counter[order]
        end = borders[drawn + 1]
        low, high = np.searchsorted(starts, borders[drawn], "right") - 1, np.searchsorted(starts, end)
        begin = starts[low + _draw(key, SENTENCE, counter, high - low)]
        begin = np.where(begin < end, begin, borders[drawn])  # the rest of the document is empty
        examples.start[far, 1] = begin
        examples.stop[far, 1] = starts[np.searchsorted(starts, np.minimum(begin + left, end))]
        return examples

    def _other_documents(self, document: Ints, counter: Ints, key: int) -> Ints:
        """Draw a document that has text and differs from the given one, if one is found within TRIES draws."""
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
        starts, position = sentences.starts, np.arange(len(sentences.document))
        aim = self._aims(sentences.document, 2, self.length - SPECIAL, key)
        end = np.maximum(sentences.reach(aim), np.minimum(position + 2, sentences.last))
        begin = np.where(end - position == 1, np.maximum(position - 1, sentences.first), position)
        at = chunk_starts(end)
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
        at = chunk_starts(end)
        whole = chance.unit(key, SINGLE, starts[at]) < self.single
        nothing = starts[end[at]]
        full = np.where(whole, WHOLE, (aim[at] - SPECIAL) // 2)
        return Pairs(np.stack([starts[at], nothing], 1), np.stack([nothing, nothing], 1), full)


class Ahead:
    """Calls a function of consecutive numbers: recent results are cached, the next one is made in the background."""

    def __init__(self, make: Callable[[int], Pairs]) -> None:
        self.make, self._process = make, os.getpid()
        self._made: dict[int, Future[Pairs]] = {}

    def __reduce__(self) -> tuple[type[Ahead], tuple[Callable[[int], Pairs]]]:
        return Ahead, (self.make,)  # results and threads are not pickled

    def __call__(self, number: int) -> Pairs:
        if self._process != os.getpid():  # after a fork, the threads do not exist
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


def chunk_starts(after: Ints) -> Ints:
    """Return the first sentences of consecutive chunks, where `after` gives each chunk's successor."""
    successors, location, visited = after.tolist(), 0, []
    while location < len(successors):
        visited.append(location)
        location = successors[location]
    return np.asarray(visited, np.int64)


def _draw(key: int, use: int, counter: Ints, limit: Ints | int, *more: int) -> Ints:
    return (chance.unit(key, use, counter, *more) * limit).astype(np.int64)


def _fulfil(promise: Future[Pairs], make: Callable[[int], Pairs], number: int) -> None:
    """Set the result of a future; an error is raised where the result is read."""
    try:
        promise.set_result(make(number))
    except BaseException as error:
        promise.set_exception(error)
