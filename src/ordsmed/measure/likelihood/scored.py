"""Scored: how likely a model of any kind finds a text, token by token and word by word, in bits of surprisal.

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
from ordsmed.weights.trained import Trained

Span = tuple[int, int]


@dataclass(frozen=True)
class ScoredPart:
    """A token or word of a text: its characters and how surprising it is."""

    text: str
    start: int
    end: int
    bits: float | None  # -log2 of its probability; None: nothing stands before it that would tell it


@dataclass(frozen=True)
class Scored:
    """A text and how likely it is."""

    text: str
    way: str  # in which the model was read
    log_likelihood: float  # the sum over scored tokens of the natural logarithms of their probabilities
    tokens: tuple[ScoredPart, ...]
    words: tuple[ScoredPart, ...]  # what stands between white space; bits of a word are those of its tokens together


def score_each(trained: Trained, texts: Sequence[str], way: str = "") -> list[Scored]:
    """Each text, all of them read together."""
    scorer = check(trained, way)
    for text in texts:
        valid(text, "score")
    items = scorer.cut([*texts])
    for item, text in zip(items, texts, strict=True):
        fits(scorer, item, "score", text)
    with trained.within():
        scores = scorer.scores(items)
    return [_scored(scorer, text, item, of) for text, item, of in zip(texts, items, scores, strict=True)]


def check(trained: Trained, way: str = "") -> Scorer:
    """How a model is read; refused where it tells nothing of how likely texts are."""
    trained.check_heads()
    return ways.scorer(trained, way)


def _scored(scorer: Scorer, text: str, item: Item, scores: Scores) -> Scored:
    skipped = [None] * item.first
    bits = [*skipped, *(-scores.logs / math.log(2)).tolist()]
    spans = _spans_of_words(text, item.words) if item.words else _spans_of_pieces(scorer, text)
    tokens = [ScoredPart(text[a:b], a, b, value) for (a, b), value in zip(spans, bits, strict=True)]
    return Scored(text, scorer.way, scores.total, tuple(tokens), tuple(_words(text, tokens)))


def _spans_of_pieces(scorer: Scorer, text: str) -> list[Span]:
    """The characters of each piece, cut as the scorer cuts."""
    return list(scorer.tokenizer.pipeline.encode(text, add_special_tokens=False).offsets)


def _spans_of_words(text: str, words: Sequence[str]) -> list[Span]:
    """The characters of each word in their order; of one that is written otherwise in the text, the place it has."""
    spans, at = [], 0
    for word in words:
        begin = text.find(word, at)
        begin, end = (at, at) if begin < 0 else (begin, begin + len(word))
        spans.append((begin, end))
        at = end
    return spans


def _words(text: str, tokens: Sequence[ScoredPart]) -> Iterator[ScoredPart]:
    """A token belongs to the word of its last character; a word of which a token has no bits has none either."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    owners = np.searchsorted([end for _, end in spans], [max(token.end, 1) for token in tokens])
    bits_of = defaultdict[int, list[float | None]](list)
    for token, owner in zip(tokens, owners.tolist(), strict=True):
        bits_of[owner].append(token.bits)
    for number, (begin, end) in enumerate(spans):
        known = [value for value in bits_of[number] if value is not None]
        whole = bool(known) and len(known) == len(bits_of[number])
        yield ScoredPart(text[begin:end], begin, end, math.fsum(known) if whole else None)
