"""Cut documents into passages between sentences, up to a length in tokens.

    sentences of 60, 30, 40, 40 tokens, length 100, overlap 50  ->  passages of sentences [0, 2), [1, 3), [2, 4)

The next passage begins with the last sentences of the previous one that fit in the overlap. A passage ends before a new
paragraph if the rest of that paragraph does not fit and half of the length is used. A sentence longer than the length
is cut between words.
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
    def __call__(self, texts: Sequence[str]) -> list[int]: ...


def in_words(texts: Sequence[str]) -> list[int]:
    return [len(words_of(text)) for text in texts]


@dataclass(frozen=True)
class InTokens:
    tokenizer: Tokenizer

    def __call__(self, texts: Sequence[str]) -> list[int]:
        encodings = self.tokenizer.plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding) for encoding in encodings]


@dataclass(frozen=True)
class Sentence:
    begin: int  # in characters of the document
    end: int
    length: int  # as measured
    opens: bool  # whether it begins a paragraph


@dataclass(frozen=True)
class PassageCutting:
    """Length and overlap of passages, and whether the title counts."""

    length: int
    overlap: int
    title: bool

    def passages(self, documents: Sequence[Document], measure: Measure) -> list[list[tuple[int, int]]]:
        """Return the begin and end of each document's passages in characters, without white space."""
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
    """Return the title that is put before the document's passages."""
    return " ".join(str(document.meta.get("title") or "").split())


def read_as(title: str, text: str) -> str:
    """Return a passage as it is read: on one line, after its title unless it already begins with it."""
    line = " ".join(text.split())
    return line if line.startswith(title) else f"{title} {line}"


def _sentences(document: Document) -> Iterator[tuple[int, int, bool]]:
    """Yield the begin and end of sentences that are not blank, and whether each follows a line break."""
    text, begin = document.text, 0
    for end in document.ends or rules(text):
        blank = re.compile(r"\s*").match(text, begin, end)
        at = blank.end() if blank else begin
        if at < end:
            yield begin, end, begin == 0 or "\n" in text[begin:at]
        begin = end


def _fitting(text: str, sentence: Sentence, room: int, measure: Measure) -> Iterator[Sentence]:
    """Yield the sentence, or its halves if it is too long, cut at the space nearest to the middle."""
    begin, end = sentence.begin, sentence.end
    if sentence.length <= room or end - begin < 2:
        yield sentence
        return
    middle = (begin + end) // 2
    blanks = [match.start() for match in re.compile(r"\s+").finditer(text, begin + 1, end - 1)]
    at = min(blanks, key=lambda blank: abs(blank - middle), default=middle)
    for a, b, opens in ((begin, at, sentence.opens), (at, end, False)):
        yield from _fitting(text, Sentence(a, b, measure([text[a:b]])[0], opens), room, measure)


def _runs(sentences: Sequence[Sentence], room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the end sentence of each passage."""
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
    lengths = [sentence.length for sentence in sentences]
    for at in reversed(range(len(sentences) - 1)):
        if not sentences[at + 1].opens:
            lengths[at] += lengths[at + 1]
    return lengths


def _stripped(text: str, begin: int, end: int) -> tuple[int, int]:
    part = text[begin:end]
    return begin + len(part) - len(part.lstrip()), begin + len(part.rstrip())
