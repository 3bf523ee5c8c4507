"""Pairs: vectors of texts, near each other where texts belong together: an anchor and its positive.

    "What falls?" - "Rain falls ."   ->  states [L, D]  ->  pool  ->  vectors [D]  ->  nearer than all others

Every other text of a step is a negative, beside those that the files give; so a step is compared as a whole, however it
is cut. Pairs with scores are learned from by these. How files are read, texts become rows, what losses there are and
how predictions are scored: learn/embedding/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice, kind_of
from ordsmed.base.say import say
from ordsmed.data.features import ExampleRows, Features, Packing
from ordsmed.data.pieces import Ints, TextReader
from ordsmed.learn.embedding import inputs, outputs
from ordsmed.learn.embedding.encoder import TERM, PairEncoder
from ordsmed.learn.embedding.inputs import BY_SIMILARITY, OF_SCORES, Loss
from ordsmed.learn.embedding.losses import Comparison, losses
from ordsmed.learn.embedding.mining import with_negatives
from ordsmed.learn.embedding.outputs import PairFiles, PairPredictions
from ordsmed.learn.embedding.records import PairRecords, read_records
from ordsmed.learn.embedding.sparse import SparsePairEncoder
from ordsmed.learn.task import Arrays, Files, TextVectors
from ordsmed.learn.upper_layers import Top
from ordsmed.nn.model import ModelSettings
from ordsmed.text import read
from ordsmed.text.labelled.tables import Format
from ordsmed.text.tokenizer import Tokenizer

SPECIAL = 2  # tokens around a text
TEMPERATURE = 0.05  # where a loss is not of shares; sentence-transformers says scale = 20
SIMILARITY = ("normalize", "temperature", "flops", "symmetric", "margin", "widths")
COMPARED_BY = ("head", "loss", "pool", *SIMILARITY, "proportions")
FLOPS = (5e-5, 3e-5)  # of sparse vectors; what sentence-transformers' examples take
COSINES = "task.normalize=true and dense ones: its scores are cosines"
COMPARED = 64  # pairs of the dev files that are each other's negatives in their loss


@dataclass(frozen=True, kw_only=True)
class TextPairs(Files, PairFiles, Choice):
    """Vectors of texts, from pairs of texts that belong together."""

    head: Literal["dense", "sparse"] = "dense"
    """dense: a vector as wide as the network; sparse: a weight for each piece of the vocabulary, most of them 0, by the
    masked-LM head of the pretrained model (SPLADE)"""
    loss: Loss | None = None
    """infonce: the positive among all texts of the step; cosent: pairs in the order of their scores; cosine_mse: the
    score as the cosine; margin_mse, kl: a cross-encoder's scores of positive and negatives; left out: cosent where each
    pair has a score and no negatives, else infonce"""
    pool: Literal["mean", "first", "last"] | None = None
    """which vector is a text's: the mean of its tokens, or that of the first or last; left out: mean, of causal last"""
    normalize: bool | None = None
    """vectors of length 1, compared by their cosine; false: by their product; left out: true, of sparse ones false"""
    temperature: float | None = None
    """similarities are divided by it; left out: 0.05, of kl and sparse vectors 1; elsewhere its inverse: scale = 20"""
    flops: tuple[float, ...] = ()
    """sparse: how much the loss counts the work of a search, by words of anchors and of texts that are found; left out:
    [5e-5, 3e-5]; elsewhere query_regularizer_weight, document_regularizer_weight"""
    symmetric: bool = False
    """infonce: each positive finds its anchor among all, too"""
    margin: float | None = None
    """infonce: what is more like the anchor than the positive is, by so much, counts as no negative"""
    widths: tuple[int, ...] = ()
    """fronts of the vector that are to be vectors as well: [256, 128, 64]; elsewhere matryoshka_dims"""
    query: str = ""
    """written before anchors, in training and ever after (`query: `)"""
    passage: str = ""
    """written before positives and negatives (`passage: `)"""
    mine: int = 0
    """so many hard negatives for each pair to learn from: texts of the files that BM25 finds for the anchor"""
    proportions: tuple[float, ...] = ()
    """how often a step is of each of the files of `train`; left out: as often as they are large"""
    length: int = 256
    """tokens of the longest text; longer ones are cut; elsewhere max_seq_length"""
    format: Format | None = None
    """of the files; left out: as their names end"""
    header: bool = True
    """does the first line of TSV and CSV name the columns?"""
    errors: read.Errors = "strict"
    """bytes that are no UTF-8: refused, or replaced and counted"""

    role: ClassVar[str] = "pairs"
    FORMAT: ClassVar[str] = "sentence-transformers"
    MADE_UP: ClassVar[str] = "pairs.jsonl"
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, *COMPARED_BY)
    LATER: ClassVar[tuple[str, ...]] = ("train", "dev", "format", "header", "errors")

    def __post_init__(self) -> None:
        or_more(self, length=1, mine=0)
        if self.top != Top():
            raise ValueError("top: found layers; wanted none: a text's vector is pooled from the network's own states")
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature: found {self.temperature:g}; wanted above 0")
        if self.loss not in (None, "infonce"):
            for name, usual in (("symmetric", False), ("margin", None)):
                if getattr(self, name) != usual:
                    raise ValueError(f"{name}: found with {self.loss}; wanted it with infonce alone")
        _check_head(self)
        if self.loss == "cosine_mse" and not self.unit:
            raise ValueError(
                f"loss: found cosine_mse with vectors that are compared by their product; wanted {COSINES}"
            )
        if list(self.widths) != sorted(set(self.widths), reverse=True) or min(self.widths, default=1) < 1:
            raise ValueError(f"widths: found {list(self.widths)}; wanted whole numbers, the largest first")
        if min(self.proportions, default=1) <= 0:
            raise ValueError(f"proportions: found {list(self.proportions)}; wanted numbers above 0")

    @property
    def unit(self) -> bool:
        """Are vectors of length 1?"""
        return self.head == "dense" if self.normalize is None else self.normalize

    @property
    def record(self) -> str:
        return "spearman" if self.loss in BY_SIMILARITY else f"mrr@{outputs.BEST}"

    def synthetic(self, sizes: Ints, words: Callable[[int], str]) -> str:
        counts = [max(1, size - SPECIAL) for size in sizes.tolist()]
        rows = ({"anchor": words(count), "positive": words(count)} for count in counts)
        return "".join(json.dumps(row) + "\n" for row in rows)

    def records(self, paths: Sequence[str], *, learning: bool = False) -> PairRecords:
        records = read_records(paths, self.format, self.errors, header=self.header)
        return with_negatives(records, self.mine) if learning and self.mine else records

    def complete(self, records: PairRecords) -> TextPairs:
        loss = self.loss or ("cosent" if records.scored and not records.negatives else "infonce")
        if loss in OF_SCORES:
            inputs.check_scores(records, loss)
        elif not np.isnan(records.gold).all():
            say(f"{records.files[0]}: scores are not read by {loss}; task.loss chooses another loss")
        return replace(self, loss=loss)

    def features(self, records: PairRecords, reader: TextReader) -> Features:
        return inputs.features(records, reader, self.length, self.query, self.passage)

    def rows(self, features: Features, packing: Packing, batch: int, *key: object) -> ExampleRows:
        rows = inputs.RecordRows(features, packing, *key, batch=batch, proportions=self.proportions)
        if self.loss == "infonce" and batch < 2 and int(np.diff(rows.first).min()) < 3:
            problem = f"found {batch}, with pairs that have no negatives of their own"
            raise RecipeError("batch", problem, "2 or more: other texts of the step are the negatives")
        return rows

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> PairEncoder:
        if self.widths and self.widths[0] > model.width:
            raise RecipeError("task.widths", f"found {self.widths[0]}", f"at most {model.width}, the network's width")
        if self.pool == "first" and model.capabilities.causal:
            raise RecipeError("task.pool", "found first; the first token of a causal model sees no other", "last")
        pool = self.pool or ("last" if model.capabilities.causal else "mean")
        prompts = {"query": self.query, "passage": self.passage}
        if self.head == "sparse":
            if model.capabilities.causal or "head" not in model.architectures:
                problem = f"found sparse; a {kind_of(model)} has no masked-LM head"
                raise RecipeError("task.head", problem, "a network that has one, or dense")
            how = TextVectors("max", normalize=False, prompts=prompts, length=self.length, sparse=True)
            return SparsePairEncoder(model, tokenizer.vocabulary, how, self.comparison)
        vectors = TextVectors(pool, self.unit, prompts, self.length, self.widths)
        return PairEncoder(model, tokenizer.vocabulary, vectors, self.comparison)

    @property
    def comparison(self) -> Comparison:
        """How vectors are compared in a step."""
        loss = self.loss or "infonce"
        usual = 1.0 if loss == "kl" or self.head == "sparse" else TEMPERATURE
        temperature = usual if self.temperature is None else self.temperature
        flops = (self.flops or FLOPS) if self.head == "sparse" else ()
        return Comparison(loss, temperature, self.unit, self.symmetric, self.margin, self.widths, flops)

    def predictions(self, records: PairRecords, features: Features, answers: Arrays) -> PairPredictions:
        return outputs.predictions(records, answers["vector"])

    def score(self, records: PairRecords, predictions: PairPredictions) -> dict[str, float]:
        return outputs.score(records, predictions, by_scores=self.record == "spearman")

    def losses(self, features: Features, answers: Arrays) -> dict[str, float]:
        """Of the dev files in batches of their own, in their order."""
        rows = inputs.RecordRows(features, Packing(0), batch=COMPARED)
        if self.loss in OF_SCORES and np.isnan(rows.scores[rows.first[:-1] + 1]).any():
            return {}
        vectors, total = torch.from_numpy(answers["vector"]), 0.0
        for numbers in np.split(np.arange(len(rows)), range(COMPARED, len(rows), COMPARED)):
            texts, labels = rows.labels(numbers)
            parts = losses(self.comparison, vectors[torch.from_numpy(texts)], torch.from_numpy(labels))
            total += sum(float(lost.sum()) for _, lost in parts)
        return {TERM: total / len(rows)}

    def guesses(self, train: PairRecords, records: PairRecords) -> PairPredictions:
        return outputs.guesses(records)


def _check_head(task: TextPairs) -> None:
    """Refuse settings of dense vectors with sparse ones, and the other way round."""
    if task.head == "sparse":
        dense_only = {"pool": task.pool is not None, "normalize": task.normalize is True, "widths": bool(task.widths)}
        for name in (name for name, is_set in dense_only.items() if is_set):
            raise ValueError(f"{name}: found with sparse vectors; wanted it with dense ones alone")
    elif task.flops:
        raise ValueError("flops: found with dense vectors; wanted it with task.head=sparse alone")
    if len(task.flops) not in (0, 2) or min(task.flops, default=0) < 0:
        raise ValueError(f"flops: found {list(task.flops)}; wanted two numbers of 0 or more, of anchors and candidates")
