"""Tokenized texts of a task, with the characters that each token covers, and the special tokens around them.

    "Newts swim"  ->  new ##ts swim  left 0 3 5  right 3 5 10  ->  [CLS] new ##ts swim [SEP]

A frame is the special tokens that the tokenizer adds around one text or two. For a tokenizer of words, ids are indices
into a list of the words that occurred, whose characters a character network reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import RecipeError
from ordsmed.data.unknown import UnknownTokens
from ordsmed.text.tokenizer import Tokenizer

Ints = NDArray[np.int64]
SPECIAL_WORDS = ("<S>", "</S>")  # the first two words of a list
AT_ONCE = 1_000  # texts tokenized in one call
SHOWN = 10_000  # number of unknown tokens whose texts are collected


@dataclass(frozen=True)
class TextPieces:
    starts: Ints  # [texts + 1]  start of each text
    ids: Ints
    left: Ints  # first character of each token
    right: Ints  # end (exclusive) of each token

    def of(self, text: int) -> slice:
        return slice(int(self.starts[text]), int(self.starts[text + 1]))


@dataclass(frozen=True)
class TextFrame:
    """The special tokens around one text or two."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    types: bool  # the second text has another token type

    @staticmethod
    def of(tokenizer: Tokenizer, *, types: bool) -> TextFrame:
        """Determine the frame by encoding short texts with the tokenizer."""
        if tokenizer.whole_words:
            return TextFrame((0,), (1,), (1,), types=False)
        single, pair = tokenizer.pipeline.encode("a"), tokenizer.pipeline.encode("a", "a")
        single_ids, pair_ids = np.asarray(single.ids), np.asarray(pair.ids)
        inside = [k for k, which in enumerate(single.sequence_ids) if which is not None]
        first = [k for k, which in enumerate(pair.sequence_ids) if which == 0]
        second = [k for k, which in enumerate(pair.sequence_ids) if which == 1]
        if not inside or not first or not second:
            raise RecipeError("tokenizer", "encodes the letter a as no token", "a tokenizer that encodes text")
        before, after = single_ids[: inside[0]].tolist(), single_ids[inside[-1] + 1 :].tolist()
        return TextFrame(tuple(before), tuple(after), tuple(pair_ids[first[-1] + 1 : second[0]].tolist()), types)

    def joint(self, *, two: bool) -> int:
        return len(self.before) + len(self.after) + (len(self.between) if two else 0)


@dataclass
class TextReader:
    tokenizer: Tokenizer
    types: bool  # the network has token types
    causal: bool = False  # the network is causal
    words: dict[bytes, int] = field(default_factory=dict)  # for a tokenizer of words: index of each word that occurred
    unknown: UnknownTokens = field(default_factory=UnknownTokens)  # over all texts

    def __post_init__(self) -> None:
        self.frame = TextFrame.of(self.tokenizer, types=self.types)

    def pieces(self, texts: Sequence[str]) -> TextPieces:
        """Tokenize texts without adding special tokens; names of special tokens in them are plain text."""
        parts = [self._cut(texts[at : at + AT_ONCE]) for at in range(0, len(texts), AT_ONCE)]
        sizes = [size for part, _, _ in parts for size in part]
        offsets = _ints(itertools.chain.from_iterable(part for _, _, part in parts), 2 * sum(sizes)).reshape(-1, 2)
        ids = np.concatenate([part for _, part, _ in parts]) if parts else np.zeros(0, np.int64)
        return TextPieces(np.cumsum([0, *sizes], dtype=np.int64), ids, offsets[:, 0], offsets[:, 1])

    @staticmethod
    def longest_first(first: Ints, second: Ints, room: int) -> tuple[Ints, Ints]:
        """Return how many tokens of two texts are kept: the longer is truncated first, then both in turns."""
        short = np.minimum(np.minimum(first, second), room // 2)
        long = room - short
        fits = first + second <= room
        first_is_longer = first > second
        kept_first, kept_second = np.where(first_is_longer, long, short), np.where(first_is_longer, short, long)
        return np.where(fits, first, kept_first), np.where(fits, second, kept_second)

    def _cut(self, texts: Sequence[str]) -> tuple[list[int], Ints, list[int]]:
        encoded = self.tokenizer.plain.encode_batch(list(texts), add_special_tokens=False)
        sizes = [len(encoding) for encoding in encoded]
        if self.tokenizer.whole_words:
            spelled = (text[a:b] for text, encoding in zip(texts, encoded, strict=True) for a, b in encoding.offsets)
            ids = _ints(map(self._number, spelled), sum(sizes))
        else:
            ids = _ints(itertools.chain.from_iterable(encoding.ids for encoding in encoded), sum(sizes))
            self._note_unknown(texts, ids, np.cumsum(sizes))
        return sizes, ids, [end for encoding in encoded for location in encoding.offsets for end in location]

    def _note_unknown(self, texts: Sequence[str], ids: Ints, ends: Ints) -> None:
        before = self.unknown.unknown
        self.unknown.count(ids, self.tokenizer)
        if before < self.unknown.unknown < SHOWN:
            which = np.unique(np.searchsorted(ends, np.flatnonzero(ids == self.tokenizer.unknown), "right"))
            self.unknown.look((texts[n] for n in which.tolist()), self.tokenizer)

    def _number(self, word: str) -> int:
        """Return a word's index in the list, after <S> and </S>; the word is normalized as in pretraining."""
        normalizer = self.tokenizer.pipeline.normalizer
        characters = (normalizer.normalize_str(word) if normalizer else word).encode()
        return self.words.setdefault(characters, len(SPECIAL_WORDS) + len(self.words))

    def listed(self) -> tuple[NDArray[np.uint8], Ints] | None:
        """Return the characters of the listed words, with <S> and </S> first, and the start of each word."""
        if not self.tokenizer.whole_words:
            return None
        sizes = [0, 0, *map(len, self.words)]
        return np.frombuffer(b"".join(self.words), np.uint8), np.cumsum([0, *sizes], dtype=np.int64)


def _ints(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)
