"""Passages: documents cut between sentences, each passage as long as a length in tokens allows.

    sentences of 30, 50, 90, 40 tokens, length 100, overlap 50  ->  30 50 | 50 | 90 | 40 would be cut as
    [0, 2), [2, 3), [3, 4): the next passage begins with what of the last one fits in the overlap

Where the rest of a paragraph does not fit, and half of the length is used, a passage ends before the paragraph. A
sentence that is longer than the length is cut between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ordsmed.text.bm25 import words_of
from ordsmed.text.document import Document
from ordsmed.text.sentences import rules
from ordsmed.text.tokenizer import Tokenizer


class Measure(Protocol):
    """How long texts are."""

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Of each text its length."""


def in_words(texts: Sequence[str]) -> list[int]:
    """By the words that a search for words counts."""
    return [len(words_of(text)) for text in texts]


@dataclass(frozen=True)
class InTokens:
    """By the tokens of a model."""

    tokenizer: Tokenizer

    def __call__(self, texts: Sequence[str]) -> list[int]:
        encodings = self.tokenizer.plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]


@dataclass(frozen=True)
class Sentence:
    """From one character of a document to another."""

    begin: int
    end: int
    length: int
    opens: bool  # does it begin a paragraph?


@dataclass(frozen=True)
class PassageCutting:
    """How documents are cut."""

    length: int
    overlap: int
    title: bool

    def passages(self, documents: Sequence[Document], measure: Measure) -> list[list[tuple[int, int]]]:
        """Of each document where its passages begin and end, white space left out."""
        spans = [list(_sentences(document)) for document in documents]
        texts = [d.text[a:b] for d, of_one in zip(documents, spans, strict=True) for a, b, _ in of_one]
        lengths = iter(measure(texts))
        titles = measure([title_of(document) for document in documents]) if self.title else [0] * len(documents)
        passages = []
        for document, of_one, title in zip(documents, spans, titles, strict=True):
            room = max(self.length - title, self.length // 2, 1)
            sentences = [
                part
                for begin, end, opens in of_one
                for part in _fitting(document.text, Sentence(begin, end, next(lengths), opens), room, measure)
            ]
            runs = _runs(sentences, room, min(self.overlap, room - 1))
            passages.append([_stripped(document.text, sentences[a].begin, sentences[b - 1].end) for a, b in runs])
        return passages


def title_of(document: Document) -> str:
    """What stands above its passages."""
    return " ".join(str(document.meta.get("title") or "").split())


def read_as(title: str, text: str) -> str:
    """A passage as it is read: one line, below its title unless it begins with that."""
    line = " ".join(text.split())
    return line if line.startswith(title) else f"{title} {line}"


def _sentences(document: Document) -> Iterator[tuple[int, int, bool]]:
    """Those that say something; a new line opens a paragraph."""
    text, begin = document.text, 0
    for end in document.ends or rules(text):
        blank = re.compile(r"\s*").match(text, begin, end)
        at = blank.end() if blank else begin
        if at < end:
            yield begin, end, begin == 0 or "\n" in text[begin:at]
        begin = end


def _fitting(text: str, sentence: Sentence, room: int, measure: Measure) -> Iterator[Sentence]:
    """The sentence, or where it is too long its halves, cut at the word nearest to the middle, and so on."""
    begin, end = sentence.begin, sentence.end
    if sentence.length <= room or end - begin < 2:
        yield sentence
        return
    middle = (begin + end) // 2
    blanks = [match.start() for match in re.compile(r"\s+").finditer(text, begin + 1, end - 1)]
    at = min(blanks, key=lambda place: abs(place - middle), default=middle)
    for a, b, opens in ((begin, at, sentence.opens), (at, end, False)):
        yield from _fitting(text, Sentence(a, b, measure([text[a:b]])[0], opens), room, measure)


def _runs(sentences: Sequence[Sentence], room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """From which sentence to which each passage goes."""
    begin, used = 0, 0
    paragraphs = _paragraph_lengths(sentences)
    for at, sentence in enumerate(sentences):
        breaks = sentence.opens and used >= room / 2 and used + paragraphs[at] > room
        if at > begin and (breaks or used + sentence.length > room):
            yield begin, at
            begin, used = at, 0
            while begin > 0 and used + sentences[begin - 1].length <= min(overlap, room - sentence.length):
                begin -= 1
                used += sentences[begin].length
        used += sentence.length
    if sentences:
        yield begin, len(sentences)


def _paragraph_lengths(sentences: Sequence[Sentence]) -> list[int]:
    """From each sentence to the end of its paragraph."""
    lengths = [sentence.length for sentence in sentences]
    for at in reversed(range(len(sentences) - 1)):
        if not sentences[at + 1].opens:
            lengths[at] += lengths[at + 1]
    return lengths


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())
