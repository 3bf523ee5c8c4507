"""Vectors of tokens, by which texts are compared (late interaction, ColBERT).

    batch -> states [B, T, D] -> projection -> vectors [E, L, W], zeros after a text's end -> MaxSim of all texts

All tokens of a question have a vector, also the masks that pad it; tokens of a text have one, except skipped ones.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.base.say import many, say
from ordsmed.data.batch import Batch
from ordsmed.data.examples import cut_examples
from ordsmed.data.features import NOT_ASKED, Features
from ordsmed.data.pieces import TextReader
from ordsmed.learn.embedding.encoder import PairComparing
from ordsmed.learn.embedding.inputs import COLUMNS
from ordsmed.learn.embedding.losses import Comparison
from ordsmed.learn.embedding.records import PairRecords
from ordsmed.learn.task import INITIALIZER_STD, LateInteraction, TokenVectors, by_example
from ordsmed.learn.upper_layers import width
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.heads import sequential
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

HAS_VECTOR = 1  # mark of a token, if other tokens have no vector


class TokenPairEncoder(PairComparing, LateInteraction):
    end_to_end = ("vectors",)

    number = True

    def __init__(self, model: ModelSettings, vocabulary: int, tokens: TokenVectors, comparison: Comparison) -> None:
        super().__init__(model, vocabulary, comparison)
        self.tokens = tokens
        self.projection = sequential(INITIALIZER_STD, out=nn.Linear(width(model), tokens.width, bias=False))

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        vectors = by_example(self.projection(self.states(batch)).float(), batch)
        if self.tokens.skipped:
            vectors = vectors * by_example(batch.weights, batch)[..., None]
        return {"vectors": vectors}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"vectors": F.normalize(scores["vectors"], dim=-1)}

    def token_vectors(self, batch: Batch) -> Tensor:
        return self.validate(batch)["vectors"]

    def flops(self, rows: int, length: int) -> float:
        head = 2.0 * width(self.model_settings) * self.tokens.width
        return super().flops(rows, length) + 3.0 * rows * length * head

    def usage(self, name: str, tokenizer: Tokenizer, learned: object) -> Usage:
        code = (
            f"import ordsmed\n\nmodel = ordsmed.open({name!r})\n"
            'print(model.classify("What is old?", "The bridge is old.").number)\n'
        )
        note = "`ordsmed export RUN OUT --to sentence-transformers` writes it for MultiVectorEncoder."
        does = f"computes a vector of {self.tokens.width:,} numbers for each token of a text (late interaction)"
        tags = ("feature-extraction", "multi-vector", "colbert")
        return Usage("sentence-similarity", does, f"{in_python(name, code)}\n\n{note}", tags=tags)


def punctuation(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ASCII punctuation characters that are one token -> the number of the token."""
    ids = {sign: tokenizer.pipeline.token_to_id(sign) for sign in string.punctuation}
    return {sign: number for sign, number in ids.items() if number is not None}


def pair_features(records: PairRecords, reader: TextReader, settings: TokenVectors) -> Features:
    """Return the features of anchors, then of all other texts; report how many texts were truncated."""
    queries, cut_queries = token_features(records.texts[: records.queries], "query", reader, settings)
    passages, cut_passages = token_features(records.texts[records.queries :], "passage", reader, settings)
    if count := int(cut_queries.sum()) + int(cut_passages.sum()):
        lengths = (
            f"{settings.query_length} or {settings.length}"
            if settings.query_length != settings.length
            else f"{settings.length}"
        )
        say(f"{count:,} of {many(len(records.texts), 'text')} were truncated to {lengths} tokens (task.length)")
    more = {name: getattr(records, name) for name in COLUMNS}
    return dataclasses.replace(joined(queries, passages), more=more)


def token_features(
    texts: Sequence[str], group: str, reader: TextReader, settings: TokenVectors
) -> tuple[Features, NDArray[np.bool_]]:
    """Return the features of texts with the prompt of their group, and which texts were truncated."""
    is_query, before = group == "query", settings.prompts.get(group, "")
    length = settings.query_length if is_query else settings.length
    features, cut = cut_examples([[before + text for text in texts]], length, reader)
    if is_query:
        features = _expanded(features, settings)
    if settings.skipped:
        left_out = np.isin(features.ids, [] if is_query else settings.skipped)
        features = dataclasses.replace(features, marks=np.where(left_out, NOT_ASKED, HAS_VECTOR).astype(np.int32))
    return features, cut


def _expanded(features: Features, settings: TokenVectors) -> Features:
    """Pad each example to at least `expand` tokens."""
    sizes = features.sizes
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, settings.expand))])
    if starts[-1] == features.starts[-1]:
        return features
    ids = np.full(starts[-1], settings.filler, np.int32)
    types = None if features.types is None else np.zeros(starts[-1], np.uint8)
    at = np.repeat(starts[:-1] - features.starts[:-1], sizes) + np.arange(len(features.ids))
    ids[at] = features.ids
    if types is not None:
        types[at] = features.types
    return dataclasses.replace(features, starts=starts, ids=ids, types=types)


def joined(first: Features, second: Features) -> Features:
    """Concatenate the examples of two sets of features."""
    starts = np.concatenate([first.starts, first.starts[-1] + second.starts[1:]])
    columns: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("ids", "types", "marks")
    }
    return Features(starts, **columns, characters=second.characters, words=second.words)
