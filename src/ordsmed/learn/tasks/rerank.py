"""Rerank: predict one score for a question and a text that are read together (a cross-encoder).

    "What falls?", "Rain falls ."   ->  [CLS] ... [SEP] ... [SEP]  ->  head  ->  0.97

The scores sort the results of a search. Files are those of the task pairs; each candidate of a pair, its positive and
every negative, is an example. learn/embedding/ reads and scores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ordsmed.base.checks import or_more
from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.data.features import Features
from ordsmed.data.pieces import TextReader
from ordsmed.learn.embedding import outputs
from ordsmed.learn.embedding.mining import with_negatives
from ordsmed.learn.embedding.outputs import PairFiles, PairPredictions
from ordsmed.learn.embedding.records import PairRecords, read_records, records_of_pairs
from ordsmed.learn.embedding.scorer import PairScorer, ScoreLoss, pair_features
from ordsmed.learn.task import Arrays, Files
from ordsmed.nn.model import ModelSettings
from ordsmed.text import read
from ordsmed.text.labelled.tables import Format
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Rerank(Files, PairFiles, Choice):
    """One score for a question and a text."""

    loss: ScoreLoss | None = None
    """bce: learn a probability from labels, 1 for positives and 0 for negatives, or from scores from 0 to 1; mse: learn
    scores, such as those of another cross-encoder; left out: mse if scores are outside 0 to 1, else bce"""
    mine: int = 0
    """number of negatives to add to each pair: texts of the files that BM25 finds for the anchor"""
    length: int = 256
    """maximum tokens of a pair; longer ones are truncated, the longer text first; elsewhere max_seq_length"""
    format: Format | None = None
    """format of the files; left out: by their suffix"""
    header: bool = True
    """whether the first line of TSV and CSV has the names of columns"""
    errors: read.Errors = "strict"
    """bytes that are not UTF-8: strict: an error; otherwise replaced and counted"""

    role: ClassVar[str] = "classify"
    METHOD: ClassVar[str] = "classify"
    VERBS: ClassVar[tuple[str, ...]] = ("classify",)
    EXAMPLE: ClassVar[tuple[str, ...]] = ("Where is it?", "It is here.")
    FORMAT: ClassVar[str] = "sentence-transformers"
    NARROW_SHARE: ClassVar[float] = 0.3
    UNREAD: ClassVar[tuple[str, ...]] = (*Files.UNREAD, "loss")
    LATER: ClassVar[tuple[str, ...]] = ("train", "dev", "mine", "format", "header", "errors", "length")
    pairs: ClassVar[bool] = True  # it scores two texts

    def __post_init__(self) -> None:
        or_more(self, length=1, mine=0)

    @property
    def record(self) -> str:
        return "spearman" if self.loss == "mse" else f"mrr@{outputs.BEST}"

    def records(self, paths: Sequence[str], *, learning: bool = False) -> PairRecords:
        records = read_records(paths, self.format, self.errors, header=self.header)
        records = with_negatives(records, self.mine) if self.mine else records
        if not records.negatives and np.isnan(records.gold).all():
            wanted = "negatives or scores, from which to learn"
            remedy = "task.mine=4 adds texts that BM25 finds as negatives"
            raise DataError(records.files[0], "only pairs", wanted, remedy)
        return records

    def about(self, texts: Sequence[str], seconds: Sequence[str]) -> PairRecords:
        return records_of_pairs(texts, seconds)

    def complete(self, records: PairRecords) -> Rerank:
        known = records.scores[~np.isnan(records.scores)]
        beyond = bool(len(known)) and bool(known.min() < 0 or known.max() > 1)
        if self.loss == "bce" and beyond:
            problem = f"scores from {known.min():g} to {known.max():g}"
            raise DataError(records.files[0], problem, "scores from 0 to 1 for bce", "task.loss=mse")
        return replace(self, loss=self.loss or ("mse" if beyond else "bce"))

    def features(self, records: PairRecords, reader: TextReader) -> Features:
        return pair_features(records, reader, self.length)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> PairScorer:
        return PairScorer(model, tokenizer.vocabulary, self.top, self.loss or "bce")

    def predictions(self, records: PairRecords, features: Features, answers: Arrays) -> PairPredictions:
        return outputs.reranked(records, answers["score"])

    def score(self, records: PairRecords, predictions: PairPredictions) -> dict[str, float]:
        return outputs.score(records, predictions, by_scores=self.record == "spearman" or not records.negatives)

    def count_scored(self, records: PairRecords) -> int:  # type: ignore[override]
        return outputs.count_scored(records, by_scores=self.record == "spearman" or not records.negatives)

    def guesses(self, train: PairRecords, records: PairRecords) -> PairPredictions:
        return outputs.shuffled(records)
