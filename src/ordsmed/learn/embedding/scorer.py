"""A cross-encoder: a network that reads a question and a text together and returns one score.

[CLS] What falls ? [SEP] Rain falls . [SEP]  ->  state of the first token  ->  head  ->  0.97
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.data.batch import Batch
from ordsmed.data.examples import examples
from ordsmed.data.features import Features
from ordsmed.data.pieces import TextReader
from ordsmed.learn.embedding.records import PairRecords
from ordsmed.learn.pool import Pool, pooled
from ordsmed.learn.task import Reranking, Task
from ordsmed.learn.upper_layers import Top
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

ScoreLoss = Literal["bce", "mse"]
TERM = "scores"


class PairScorer(Task, Reranking):
    number = True

    def __init__(self, model: ModelSettings, vocabulary: int, top: Top, loss: ScoreLoss) -> None:
        super().__init__(top, model, vocabulary)
        recurrent = model.capabilities.state or self.top is not None
        self.pool: Pool = "max" if recurrent else "last" if model.capabilities.causal else "first"
        self.weights, self.share = {TERM: 1.0}, loss == "bce"
        self.add_head("classify", 1)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        known = 0 if batch.labels is None else len(batch.labels)
        return {TERM: torch.tensor(known, dtype=torch.float64)}

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        state = pooled(self.states(batch), batch, self.pool)
        return {"score": self.get_submodule("classify")(state).float().squeeze(1)}

    def losses(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        loss = F.binary_cross_entropy_with_logits if self.share else F.mse_loss
        return {TERM: loss(scores["score"], batch.labels, reduction="sum")}

    def answers(self, scores: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        return {"score": scores["score"].sigmoid() if self.share else scores["score"]}

    def usage(self, name: str, tokenizer: Tokenizer, learned: object) -> Usage:
        code = (
            f"import ordsmed\n\nmodel = ordsmed.open({name!r})\n"
            'print(model.classify("What is old?", "The bridge is old.").number)\n'
        )
        note = "`ordsmed export RUN OUT --to sentence-transformers` writes it for CrossEncoder."
        does = "scores how well a text answers a question"
        return Usage("text-ranking", does, f"{in_python(name, code)}\n\n{note}", tags=("reranker",))


def pair_features(records: PairRecords, reader: TextReader, length: int) -> Features:
    """Return the anchor of each record with each of its candidates.

    The label is the score, or without a score 1 for positives and 0 for negatives.
    """
    starts = records.first[:-1]
    candidates = np.delete(np.arange(len(records.members)), starts)
    record = np.repeat(np.arange(len(records)), np.diff(records.first) - 1)
    columns = [[records.texts[n] for n in part] for part in (records.anchors[record], records.members[candidates])]
    scores = records.scores[candidates]
    is_positive = candidates == starts[record] + 1
    labels = np.where(np.isnan(scores), is_positive, scores).astype(np.float32)
    more = {"record": record}
    return dataclasses.replace(examples(columns, length, reader, "pair"), labels=labels, more=more)
