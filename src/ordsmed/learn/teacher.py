"""Distillation: learn a teacher model's scores of the predicted tokens in addition to the tokens.

    loss = (1 - share) * -log p(token) + share * T² * KL(q || p),  q: softmax of the teacher's scores / T

Hinton et al. 2015. The teacher scores each batch during training, because masks are drawn again for every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ordsmed.nn.loss import CHUNK_SCORES

Layer = tuple[Tensor, Tensor | None]  # output embeddings, and a bias


@dataclass(frozen=True)
class Teacher:
    """Settings of distillation: `{ run = "work/pretrain/large" }`."""

    run: str
    """the teacher: a run, an import or a Hugging Face folder, with the same objective and vocabulary"""
    share: float = 0.5
    """share of the distance to the teacher's scores in the loss; the rest is the loss of the tokens"""
    temperature: float = 1.0
    """both models' scores are divided by it before they are compared"""
    top: int = 0
    """number of the teacher's best tokens that are compared; 0: all"""

    UNDIVIDED: ClassVar[str] = "a teacher, whose scores cover the vocabulary"  # why tensor parallelism is refused

    def __post_init__(self) -> None:
        if not self.run:
            raise ValueError('run: found ""; wanted a folder')
        if not 0 < self.share <= 1:
            raise ValueError(f"share: found {self.share}; wanted above 0, to 1")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature: found {self.temperature}; wanted a number above 0")
        if self.top < 0 or self.top == 1:
            raise ValueError(f"top: found {self.top}; wanted 2 or more tokens, or 0 for all")


def taught_loss(settings: Teacher, student: tuple[Any, ...], teaching: tuple[Any, ...]) -> Tensor:
    """Return the summed loss, from the arguments of `nn.loss.token_loss` of the student and of the teacher.

    Large tensors of scores are recomputed in the backward pass.
    """
    states, table, bias, targets, weights, vocabulary = student
    at = torch.nonzero(weights.flatten() > 0).squeeze(1)
    rows = [
        states.flatten(0, -2).index_select(0, at),
        teaching[0].flatten(0, -2).index_select(0, at),
        targets.flatten()[at],
        weights.flatten()[at],
    ]
    sums = torch.zeros((), device=at.device)
    chunks = max(1, -(-len(at) * vocabulary // CHUNK_SCORES))
    for piece in zip(*(tensor.tensor_split(chunks) for tensor in rows), strict=True):
        inputs = (settings, vocabulary, (table, bias), teaching[1:3], *piece)
        sums = sums + (_summed(*inputs) if chunks == 1 else checkpoint(_summed, *inputs, use_reentrant=False))
    return sums


def _summed(
    settings: Teacher,
    vocabulary: int,
    layer: Layer,
    teaching_layer: Layer,
    states: Tensor,
    teaching_states: Tensor,
    targets: Tensor,
    weights: Tensor,
) -> Tensor:
    scores = F.linear(states, *layer)[:, :vocabulary].float()
    with torch.no_grad():
        best = F.linear(teaching_states, *teaching_layer)[:, :vocabulary].float() / settings.temperature
        words = None
        if 0 < settings.top < vocabulary:
            best, words = best.topk(settings.top)
        wanted = best.log_softmax(1)
    logs = (scores / settings.temperature).log_softmax(1)
    logs = logs if words is None else logs.gather(1, words)
    distance = (wanted.exp() * (wanted - logs)).sum(1) * settings.temperature**2
    losses = F.cross_entropy(scores, targets, reduction="none")
    return (weights * ((1 - settings.share) * losses + settings.share * distance)).sum()
