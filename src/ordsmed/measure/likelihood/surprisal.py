"""Surprisal of texts under a model of any family, per token and per word, in bits.

"the newts ran"  ->  scorer of a way  ->  the 3.1  new 9.2  ##ts 0.4  ran 6.0  |  the 3.1  newts 9.6  ran 6.0
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ordsmed.measure.likelihood import ways
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import fits, valid
from ordsmed.weights.trained_model import Trained

Span = tuple[int, int]


@dataclass(frozen=True)
class ScoredPart:
    """A token or word of a text, with its characters and its surprisal."""

    text: str
    start: int
    end: int
    bits: float | None  # -log2 of its probability; None: no context to predict it from


@dataclass(frozen=True)
class Scored:
    text: str
    way: str  # how the model was read
    log_likelihood: float  # sum of the natural log-probabilities of scored tokens
    tokens: tuple[ScoredPart, ...]
    words: tuple[ScoredPart, ...]  # separated by white space; bits are summed over their tokens


def score_each(trained: Trained, texts: Sequence[str], way: str = "") -> list[Scored]:
    scorer = check(trained, way)
    for text in texts:
        valid(text, "score")
    items = scorer.cut([*texts])
    for item, text in zip(items, texts, strict=True):
        fits(scorer, item, "score", text)
    with trained.within():
        scores = scorer.scores(items)
    return [_scored(scorer, text, item, score) for text, item, score in zip(texts, items, scores, strict=True)]


def check(trained: Trained, way: str = "") -> Scorer:
    """Return the scorer of a model; raise an error if the model cannot score texts."""
    trained.check_heads()
    return ways.scorer(trained, way)


def _scored(scorer: Scorer, text: str, item: Item, scores: Scores) -> Scored:
    skipped = [None] * item.first
    bits = [*skipped, *(-scores.logs / math.log(2)).tolist()]
    spans = _spans_of_words(text, item.words) if item.words else _spans_of_pieces(scorer, text)
    tokens = [ScoredPart(text[a:b], a, b, value) for (a, b), value in zip(spans, bits, strict=True)]
    return Scored(text, scorer.way, scores.total, tuple(tokens), tuple(_words(text, tokens)))


def _spans_of_pieces(scorer: Scorer, text: str) -> list[Span]:
    return list(scorer.tokenizer.pipeline.encode(text, add_special_tokens=False).offsets)


def _spans_of_words(text: str, words: Sequence[str]) -> list[Span]:
    """Return the character span of each word; an empty one if the tokenizer changed the word's spelling."""
    spans, at = [], 0
    for word in words:
        begin = text.find(word, at)
        begin, end = (at, at) if begin < 0 else (begin, begin + len(word))
        spans.append((begin, end))
        at = end
    return spans


def _words(text: str, tokens: Sequence[ScoredPart]) -> Iterator[ScoredPart]:
    """Yield words with the sum of their tokens' bits; a token belongs to the word of its last character."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    owners = np.searchsorted([end for _, end in spans], [max(token.end, 1) for token in tokens])
    bits_of = defaultdict[int, list[float | None]](list)
    for token, owner in zip(tokens, owners.tolist(), strict=True):
        bits_of[owner].append(token.bits)
    for number, (begin, end) in enumerate(spans):
        known = [value for value in bits_of[number] if value is not None]
        whole = bool(known) and len(known) == len(bits_of[number])
        yield ScoredPart(text[begin:end], begin, end, math.fsum(known) if whole else None)
