"""The objective's seam: it owns its networks and returns sums; the loop divides once, by global counts.

rows(...)  CPU half, numpy: numbers -> Batch          build(...)  device half: Batch -> {term: summed loss}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ordsmed.data.batch import Batch
from ordsmed.data.rows import Rows
from ordsmed.data.store import Store
from ordsmed.learn.phases import Phase
from ordsmed.nn.model import Model
from ordsmed.text.tokenizer import Tokenizer


class Objective(nn.Module):
    """What is learned: networks, terms and their weights."""

    model: Model  # the network that is kept: exported, fine-tuned, served
    weights: dict[str, float]  # how the terms are mixed
    state: dict[str, Tensor]  # what must survive a restart beside parameters; usually empty

    def count(self, batch: Batch) -> dict[str, Tensor]:
        """How many predictions each term makes: from the batch alone."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The SUMMED losses of this micro-batch, one a term."""
        raise NotImplementedError

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        """For validation: the sums of `forward`, and beside them summed right answers under `<term>_right`."""
        raise NotImplementedError

    def flops(self, rows: int, length: int) -> float:
        """2 x multiply-adds of one training step (forward, and twice that backward) over so many rows."""
        raise NotImplementedError


class ObjectiveSettings(Protocol):
    """What every file in objectives/ offers."""

    def rows(
        self, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase, *key: object
    ) -> Rows:
        """Numbered rows of this phase."""

    def build(self, model: Any, tokenizer: Tokenizer) -> Objective:
        """The networks, for these model settings."""


def predictions(batch: Batch) -> Tensor:
    """How many slots of the batch count."""
    return batch.weights.sum(dtype=torch.float64)
