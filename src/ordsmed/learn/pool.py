"""Pooling: reduce the states of an example's tokens to one vector."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ordsmed.data.batch import Batch
from ordsmed.learn.task import by_example

Pool = Literal["first", "last", "mean", "max"]


def pooled(states: Tensor, batch: Batch, pool: Pool) -> Tensor:
    """Return one state per example, [B, T, D] -> [E, D]; special tokens are included."""
    assert batch.spans is not None
    begin, size = batch.spans.unbind(1)
    if pool in ("first", "last"):
        return states.flatten(0, 1).index_select(0, begin if pool == "first" else begin + size - 1)
    if pool == "mean":
        return by_example(states, batch).sum(1, dtype=torch.float32) / size[:, None]
    return by_example(states, batch, fill=-math.inf).amax(1)
