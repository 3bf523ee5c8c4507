"""The rules of Gopher (Rae et al. 2021) in FineWeb's version: repetition within a document, and signs that it is not
prose.

    "Home | About | Home | About | ..."  ->  dropped: pairs
    "Sizes 38 39 40 41 42 43 ..."        ->  dropped: alphabetic

Decisions are those of datatrove's GopherRepetitionFilter and GopherQualityFilter. `tail = 0.1` sets every threshold and
the stop words on a sample of the corpus, for each language (meta["language"] comes from the step `language`). The step
`ratios` has similar rules for all languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from ordsmed.base.menu import Choice
from ordsmed.corpus import repetition
from ordsmed.corpus.published_rules import FEWEST, PublishedRules, by_language, frequent, is_sign, repeated, words
from ordsmed.text.document import Document

SHARE, FEWEST_STOPS = 0.008, 8  # least share of a stop word, and least number of stop words of a language
_TOP = {"pairs": 2, "triples": 3, "fours": 4}
_AGAIN = {"dup_5gram": 5, "dup_6gram": 6, "dup_7gram": 7, "dup_8gram": 8, "dup_9gram": 9, "dup_10gram": 10}
_DOTS = ("...", "…")
_BULLETS = ("•", "-")
_ENGLISH = ["the", "be", "to", "of", "and", "that", "have", "with"]


@dataclass(frozen=True)
class Gopher(PublishedRules, Choice):
    """Keeps documents that fulfill Gopher's rules."""

    min_words: float = 50
    "least number of words, without punctuation"
    max_words: float = 100_000
    "largest number of words, without punctuation"
    min_mean_word: float = 3
    "least mean length of words, in characters"
    max_mean_word: float = 10
    "largest mean length of words, in characters"
    hashes: float = 0.1
    "most # characters per word"
    ellipses: float = 0.1
    "most ellipses (...) per word"
    bullets: float = 0.9
    "largest share of lines that begin with a bullet"
    cut_lines: float = 0.3
    "largest share of lines that end in an ellipsis"
    alphabetic: float = 0.8
    "least share of words with a letter"
    stops: float = 2
    "least number of different stop words"
    paragraphs: float = 0.3
    "largest share of paragraphs that occurred before"
    paragraph_characters: float = 0.2
    "largest share of characters in such paragraphs"
    lines: float = 0.3
    "largest share of lines that occurred before"
    line_characters: float = 0.2
    "largest share of characters in such lines"
    pairs: float = 0.2
    "largest share of characters in the most frequent pair of words"
    triples: float = 0.18
    "the same for three words"
    fours: float = 0.16
    "the same for four words"
    dup_5gram: float = 0.15
    "largest share of characters in runs of five words that occurred before"
    dup_6gram: float = 0.14
    "the same for six words"
    dup_7gram: float = 0.13
    "the same for seven words"
    dup_8gram: float = 0.12
    "the same for eight words"
    dup_9gram: float = 0.11
    "the same for nine words"
    dup_10gram: float = 0.1
    "the same for ten words"
    stop_words: dict[str, list[str]] = field(default_factory=dict)
    "stop words per language; default: English ones"

    LEAST: ClassVar[frozenset[str]] = frozenset({"min_words", "min_mean_word", "alphabetic", "stops"})
    RULES: ClassVar[tuple[str, ...]] = (
        *("paragraphs", "paragraph_characters", "lines", "line_characters", *_TOP, *_AGAIN),
        *("min_words", "max_words", "min_mean_word", "max_mean_word", "hashes", "ellipses"),
        *("bullets", "cut_lines", "alphabetic", "stops"),
    )

    def measures(self, text: str, language: str) -> Iterator[tuple[str, float]]:
        parts = words(text)
        yield from _repetition(text, parts)
        yield from self._quality(text, parts, language)

    def _quality(self, text: str, parts: list[str], language: str) -> Iterator[tuple[str, float]]:
        plain = [word for word in parts if not is_sign(word)]
        yield from ((rule, len(plain)) for rule in ("min_words", "max_words"))
        mean = sum(map(len, plain)) / max(len(plain), 1)
        yield from ((rule, mean) for rule in ("min_mean_word", "max_mean_word"))
        count, lines = max(len(parts), 1), text.splitlines()
        yield "hashes", text.count("#") / count
        yield "ellipses", sum(map(text.count, _DOTS)) / count
        yield "bullets", sum(line.lstrip().startswith(_BULLETS) for line in lines) / max(len(lines), 1)
        yield "cut_lines", sum(line.rstrip().endswith(_DOTS) for line in lines) / max(len(lines), 1)
        yield "alphabetic", sum(any(map(str.isalpha, word)) for word in parts) / count
        stop_words = self.stop_words.get(language, _ENGLISH)
        yield "stops", len(set(stop_words) & set(parts))

    def fitted(self, documents: Sequence[Document]) -> Self:
        texts = {name: of for name, of in by_language(documents).items() if len(of) >= FEWEST}
        stop_words = {name: frequent(of, SHARE, FEWEST_STOPS) for name, of in texts.items()} | self.stop_words
        return super(Gopher, replace(self, stop_words=stop_words)).fitted(documents)


def _repetition(text: str, parts: list[str]) -> Iterator[tuple[str, float]]:
    size = max(len(text), 1)
    for rule, pieces in (("paragraph", re.split(r"\n{2,}", text.strip())), ("line", re.split(r"\n+", text))):
        count, characters = repeated(pieces)
        yield f"{rule}s", count / len(pieces)
        yield f"{rule}_characters", characters / size
    yield from _runs(parts, size)


def _runs(parts: list[str], size: int) -> Iterator[tuple[str, float]]:
    keys = repetition.keys(parts)
    lengths = np.fromiter(map(len, parts), np.int64, len(parts))
    for rule, n in _TOP.items():
        grams = repetition.grams(keys, n)
        if len(grams):
            _, first, counts = np.unique(grams, return_index=True, return_counts=True)
            most_frequent = first[counts == counts.max()].min()
            yield rule, (int(lengths[most_frequent : most_frequent + n].sum()) + n - 1) * int(counts.max()) / size
    for rule, n in _AGAIN.items():
        yield rule, _again(repetition.grams(keys, n), lengths, n) / size


def _again(grams: np.ndarray, lengths: np.ndarray, n: int) -> int:
    if len(np.unique(grams)) == len(grams):
        return 0
    seen, characters, at, numbers = set[int](), 0, 0, grams.tolist()
    while at < len(numbers):
        if numbers[at] in seen:
            characters += int(lengths[at : at + n].sum())
            at += n
        else:
            seen.add(numbers[at])
            at += 1
    return characters
