"""BM25: rank passages by the words they share with a question, and fuse rankings by reciprocal rank.

    from ordsmed.text.bm25 import Bm25, fused

    Bm25.of(passages).search("which newts swim?", 10)  ->  numbers of passages, best first, and their scores
    fused([numbers of one search, numbers of another])  ->  numbers, best first, and scores (Cormack et al. 2009)
    blended((numbers, cosines), (numbers, scores), 0.3)  ->  the same, from scores; the cosines have weight 0.3

Scores are Lucene's. A word of a passage scores ln(1 + (N - n + 0.5) / (n + 0.5)) f / (f + k1 (1 - b + b l / L)): n of N
passages contain it, f is its count in this passage, l the length of the passage in words, and L the average length.
Words are lower-case runs of letters, digits and marks; in scripts without spaces every letter is a word. Building the
index takes about 20 bytes of memory for each different word of each passage, and the index 8, which may be mapped from
files.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.text.counting import UNSPACED

Array = NDArray[Any]
BLOCK = 1 << 22  # words counted at once
EDGE = 100  # rank of the passage whose cosine is scaled to 0


@dataclass(frozen=True)
class Bm25:
    """An index that lists, for every word, the passages that contain it and the word's score in each."""

    words: dict[str, int]
    starts: Array  # offset of each word's entries in `passages` and `weights`
    passages: Array
    weights: Array
    count: int  # number of passages

    @staticmethod
    def of(texts: Iterable[str], k1: float = 1.2, b: float = 0.75) -> Bm25:
        words: dict[str, int] = {}
        lengths = array("I")
        blocks = [*_blocks(texts, words, lengths)] or [np.zeros((3, 0), np.uint32)]
        word, passage, times = np.concatenate(blocks, 1)
        order = np.argsort(word, kind="stable")
        holders = np.bincount(word, minlength=len(words))
        length = np.array(lengths, np.float64)
        norm = k1 * (1 - b + b * length / max(length.mean() if len(length) else 0.0, 1e-9))
        idf = np.log1p((len(lengths) - holders + 0.5) / (holders + 0.5))
        weights = (idf[word] * times / (times + norm[passage])).astype(np.float32)
        starts = np.concatenate([[0], np.cumsum(holders)])
        return Bm25(words, starts, passage[order], weights[order], len(lengths))

    def scores(self, question: str) -> NDArray[np.float32]:
        """Return the score of every passage. A word that occurs twice in the question counts twice."""
        result = np.zeros(self.count, np.float32)
        for word in words_of(question):
            if (number := self.words.get(word)) is not None:
                entries = slice(self.starts[number], self.starts[number + 1])
                result[self.passages[entries]] += self.weights[entries]
        return result

    def search(
        self, question: str, most: int, allowed: NDArray[np.bool_] | None = None
    ) -> tuple[Array, NDArray[np.float32]]:
        """Return the numbers of at most `most` passages that share a word with the question, best first, and their
        scores.

        `allowed` restricts the search to the passages at which it is True.
        """
        scores = self.scores(question)
        if allowed is not None:
            scores[~allowed] = 0
        best = top(scores, most)
        best = best[scores[best] > 0]
        return best, scores[best]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("starts", "passages", "weights"):
            with files.writing(folder / f"{name}.npy") as file:
                np.save(file, getattr(self, name))
        files.write_json(folder / "bm25.json", {"passages": self.count, "words": [*self.words]})

    @staticmethod
    def load(folder: Path) -> Bm25:
        """Open a saved index. Its arrays are memory-mapped."""
        table = files.read_json(folder / "bm25.json")
        words = {word: number for number, word in enumerate(table["words"])}
        starts, passages, weights = (
            files.mapped(folder / f"{name}.npy", "an array of BM25", "build the index again")
            for name in ("starts", "passages", "weights")
        )
        return Bm25(words, starts, passages, weights, table["passages"])


def _blocks(texts: Iterable[str], words: dict[str, int], lengths: array[int]) -> Iterator[Array]:
    """Yield arrays [3, N] of word, passage and count for blocks of passages. Extend `words` and `lengths`."""
    numbers, first = array("I"), 0
    for text in texts:
        first_number = len(numbers)
        numbers.extend(words.setdefault(word, len(words)) for word in words_of(text))
        lengths.append(len(numbers) - first_number)
        if len(numbers) >= BLOCK:
            yield _counted(numbers, lengths, first)
            numbers, first = array("I"), len(lengths)
    if numbers:
        yield _counted(numbers, lengths, first)


def _counted(numbers: array[int], lengths: array[int], first: int) -> Array:
    passages = np.repeat(np.arange(first, len(lengths), dtype=np.uint64), np.array(lengths[first:]))
    both, times = np.unique(passages << np.uint64(32) | np.array(numbers, np.uint64), return_counts=True)
    return np.stack([both & np.uint64(0xFFFFFFFF), both >> np.uint64(32), times.astype(np.uint64)]).astype(np.uint32)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, as the index counts them."""
    return _pattern().findall(text.lower())


@cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of a word: one letter of a script without spaces, or a run of other letters and digits.

    A word includes its combining marks, which `\\w` does not match.
    """
    marks = "".join(chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M")
    unspaced = "".join("-".join(chr(int(end, 16)) for end in part.split("-")) for part in UNSPACED.split())
    return re.compile(rf"[{unspaced}][{marks}]*|(?:[^\W_{unspaced}]|[{marks}])+")


def top(scores: Array, most: int) -> Array:
    """Return the indices of the `most` highest scores, best first. Among equal scores the first ones win."""
    at = np.arange(len(scores))
    if most < len(scores):
        edge = np.partition(scores, -most)[-most] if most else np.inf
        above = np.flatnonzero(scores > edge)
        at = np.concatenate([above, np.flatnonzero(scores == edge)[: most - len(above)]])
    return at[np.argsort(-scores[at], kind="stable")]


def fused(rankings: Sequence[Sequence[int] | Array], k: float = 60.0) -> tuple[Array, Array]:
    """Fuse rankings by the sums of 1 / (k + rank). Return numbers and sums, best first; ties keep their first order."""
    return _summed(rankings, [1 / (k + np.arange(1, len(ranking) + 1)) for ranking in rankings])


def blended(dense: Sequence[Array], words: Sequence[Array], weight: float) -> tuple[Array, Array]:
    """Combine a search by vectors and one by words, each (numbers, scores), into numbers and weighted scores, best
    first.

    Cosines are scaled so that the hundredth passage gets 0 and the first 1, because their size says nothing if a model
    learned little and finds all texts alike. BM25 scores are divided by the best one.
    """
    highest, hundredth = (dense[1][[0, min(len(dense[1]), EDGE) - 1]] if len(dense[1]) else np.zeros(2)).astype(
        np.float64
    )
    scaled = np.clip((dense[1] - hundredth) / ((highest - hundredth) or 1), 0, 1)
    shared = words[1].astype(np.float64) / words[1].max(initial=1e-9)
    return _summed([dense[0], words[0]], [weight * scaled, (1 - weight) * shared])


def _summed(rankings: Sequence[Sequence[int] | Array], shares: Sequence[Array]) -> tuple[Array, Array]:
    members = np.concatenate([np.asarray(ranking, np.int64) for ranking in rankings])
    numbers, first, at = np.unique(members, return_index=True, return_inverse=True)
    sums = np.bincount(at, np.concatenate(shares))
    order = np.lexsort((first, -sums))
    return numbers[order], sums[order]
