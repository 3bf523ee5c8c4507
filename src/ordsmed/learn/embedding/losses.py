"""Losses over the vectors of all texts of a step.

    vectors [E, D], labels [E, 3] (role, number of the text, score)  ->  a loss for each anchor [N]

Texts with a vector per token, [E, L, W], are compared as in learn/embedding/maxsim.py. In training, labels have a
fourth number, the step, with which `flops` grows.

Every loss is that of sentence-transformers, as a sum over anchors: infonce is MultipleNegativesRankingLoss (symmetric:
MultipleNegativesSymmetricRankingLoss), cosent is CoSENTLoss, cosine_mse is CosineSimilarityLoss, margin_mse is
MarginMSELoss, kl is DistillKLDivLoss; with `flops` they are SpladeLoss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.learn.embedding.inputs import ANCHOR, NEGATIVE, POSITIVE, Loss
from ordsmed.learn.embedding.maxsim import maxsim, maxsim_pairs

AT_ONCE = 1 << 24  # most similarities in memory


@dataclass(frozen=True)
class Comparison:
    loss: Loss
    temperature: float
    normalize: bool
    symmetric: bool = False
    margin: float | None = None  # ignore a negative more similar than the positive by this
    widths: tuple[int, ...] = ()  # of prefixes of each vector; empty: the complete vector
    flops: tuple[float, ...] = ()  # weight of the FLOPS regularizer, of anchors and of candidates; empty: off
    flops_warmup: int = 0  # steps over which this weight grows


@dataclass(frozen=True)
class StepTexts:
    """The texts of a step by their roles, as positions among all texts."""

    labels: Tensor  # [E, 3] or [E, 4]
    anchors: Tensor  # [N]
    positives: Tensor  # [N]
    candidates: Tensor  # [M]  positives, then negatives
    owners: Tensor  # [M]  the index of the anchor of each candidate
    tokens: int = 1  # of the longest text, if each token has a vector

    @staticmethod
    def of(labels: Tensor, tokens: int) -> StepTexts:
        kind = labels[:, 0]
        anchors, positives, negatives = (torch.nonzero(kind == k).squeeze(1) for k in (ANCHOR, POSITIVE, NEGATIVE))
        candidates = torch.cat([positives, negatives])
        owners = torch.searchsorted(anchors, candidates, right=True) - 1
        return StepTexts(labels, anchors, positives, candidates, owners, tokens)

    def text(self, at: Tensor) -> Tensor:
        return self.labels[at, 1]

    def score(self, at: Tensor) -> Tensor:
        return self.labels[at, 2].float()


def losses(comparison: Comparison, vectors: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the indices of some anchors and their losses, part after part, to limit the similarities in memory.

    With several widths the loss is the sum over widths, as in sentence-transformers' MatryoshkaLoss.
    """
    group = StepTexts.of(labels, vectors.shape[1] if vectors.ndim > 2 else 1)
    for part in chain(
        LOSSES[comparison.loss](comparison, group), _flops(comparison, group) if comparison.flops else ()
    ):
        with torch.autocast(vectors.device.type, enabled=False):
            lost = sum_of(part.loss(_at_width(vectors, width, comparison)) for width in comparison.widths or (0,))
        yield part.anchors, lost


def sum_of(parts: Iterator[Tensor]) -> Tensor:
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def _at_width(vectors: Tensor, width: int, comparison: Comparison) -> Tensor:
    front = vectors[..., :width] if width else vectors
    return F.normalize(front, dim=-1) if comparison.normalize else front


@dataclass(frozen=True)
class LossPart:
    anchors: Tensor
    loss: Callable[[Tensor], Tensor]


def _flops(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    """Yield the FLOPS regularizer, the sum of the squared mean weights of all tokens, as the loss of every anchor."""
    growth = (
        group.labels[:, 3].max() / comparison.flops_warmup
        if comparison.flops_warmup and group.labels.shape[1] > 3
        else 1.0
    )
    share = min(float(growth), 1.0) ** 2

    def loss(vectors: Tensor) -> Tensor:
        of_sides = (vectors[side].mean(0).square().sum() for side in (group.anchors, group.candidates))
        total = share * sum_of(weight * lost for weight, lost in zip(comparison.flops, of_sides, strict=True))
        return total.expand(len(group.anchors))

    yield LossPart(_all(group), loss)


def _infonce(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    """Yield the cross-entropy of each anchor's positive among all candidates of the step."""
    for some in _some(len(group.anchors), len(group.candidates) * group.tokens, group.anchors.device):

        def loss(vectors: Tensor, some: Tensor = some) -> Tensor:
            forward = _positive_loss(comparison, group, vectors, some)
            return (forward + _anchor_loss(comparison, group, vectors, some)) / 2 if comparison.symmetric else forward

        yield LossPart(some, loss)


def _positive_loss(comparison: Comparison, group: StepTexts, vectors: Tensor, some: Tensor) -> Tensor:
    """Return the cross-entropy of each positive among all candidates, except other candidates that may be right."""
    anchors, positives = group.anchors[some], group.positives[some]
    similar = _similar(vectors, anchors, group.candidates)
    right = similar.gather(1, some[:, None])
    same = group.text(positives)[:, None] == group.text(group.candidates)
    of_same = (group.text(anchors)[:, None] == group.text(group.anchors)[group.owners]) & _is_positive(group)
    absent = same | of_same
    if comparison.margin is not None:
        absent = absent | (similar.detach() > right.detach() + comparison.margin)
    absent = absent.scatter(1, some[:, None], value=False)
    return F.cross_entropy(similar.masked_fill(absent, -torch.inf) / comparison.temperature, some, reduction="none")


def _is_positive(group: StepTexts) -> Tensor:
    return torch.arange(len(group.candidates), device=group.anchors.device) < len(group.positives)


def _anchor_loss(comparison: Comparison, group: StepTexts, vectors: Tensor, some: Tensor) -> Tensor:
    """Return the cross-entropy of each anchor among all anchors, given its positive."""
    similar = _similar(vectors, group.anchors, group.positives[some]).T
    same = group.text(group.anchors[some])[:, None] == group.text(group.anchors)
    of_same = group.text(group.positives[some])[:, None] == group.text(group.positives)
    absent = same | of_same
    if comparison.margin is not None:
        absent = absent | (similar.detach() > similar.detach().gather(1, some[:, None]) + comparison.margin)
    absent = absent.scatter(1, some[:, None], value=False)
    return F.cross_entropy(similar.masked_fill(absent, -torch.inf) / comparison.temperature, some, reduction="none")


def _cosent(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    """Yield one log-sum-exp over all pairs of records with different scores, as the loss of every anchor."""

    def loss(vectors: Tensor) -> Tensor:
        similar, wanted = _pairwise(group, vectors) / comparison.temperature, group.score(group.positives)
        gaps = (similar[None, :] - similar[:, None]).masked_fill(wanted[:, None] <= wanted[None, :], -torch.inf)
        total = torch.logsumexp(torch.cat([similar.new_zeros(1), gaps.flatten()]), 0)
        return total.expand(len(similar))

    yield LossPart(_all(group), loss)


def _cosine_mse(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    yield LossPart(_all(group), lambda vectors: (_pairwise(group, vectors) - group.score(group.positives)).square())


def _pairwise(group: StepTexts, vectors: Tensor) -> Tensor:
    return _similar_pairs(vectors, group.anchors, group.positives)


def _by_candidate(group: StepTexts, vectors: Tensor) -> Tensor:
    """Return the similarity of each candidate and its anchor, [M]."""
    return _similar_pairs(vectors, group.anchors[group.owners], group.candidates)


def _similar(vectors: Tensor, anchors: Tensor, texts: Tensor) -> Tensor:
    return maxsim(vectors[anchors], vectors[texts]) if vectors.ndim > 2 else vectors[anchors] @ vectors[texts].T


def _similar_pairs(vectors: Tensor, anchors: Tensor, texts: Tensor) -> Tensor:
    """Return the similarity of each anchor and the text at the same index."""
    pairs = vectors[anchors], vectors[texts]
    return maxsim_pairs(*pairs) if vectors.ndim > 2 else (pairs[0] * pairs[1]).sum(-1)


def _margin_mse(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    """Yield the squared error of the margins between positive and negatives; the targets are a teacher's margins."""

    def loss(vectors: Tensor) -> Tensor:
        count, similar, wanted = len(group.anchors), _by_candidate(group, vectors), group.score(group.candidates)
        owners = group.owners[count:]
        margins = similar[:count][owners] - similar[count:]
        margin = wanted[count:].isnan()  # a single score of a record is the margin itself
        right = torch.where(margin, wanted[:count][owners], wanted[:count][owners] - wanted[count:])
        of_each = torch.bincount(owners, minlength=count).clamp(min=1)
        return similar.new_zeros(count).index_add(0, owners, (margins - right).square()) / of_each

    yield LossPart(_all(group), loss)


def _kl(comparison: Comparison, group: StepTexts) -> Iterator[LossPart]:
    """Yield KL(teacher || model) of the distributions over the positive and the negatives of each anchor."""

    def loss(vectors: Tensor) -> Tensor:
        student = _log_shares(group, _by_candidate(group, vectors) / comparison.temperature)
        teacher = _log_shares(group, group.score(group.candidates))
        divergence = teacher.exp() * (teacher - student)
        return divergence.new_zeros(len(group.anchors)).index_add(0, group.owners, divergence)

    yield LossPart(_all(group), loss)


def _log_shares(group: StepTexts, values: Tensor) -> Tensor:
    """Return the log-softmax of each candidate's value among the candidates of its anchor."""
    count = len(group.anchors)
    most = values.new_full((count,), -torch.inf).scatter_reduce(0, group.owners, values.detach(), "amax")
    lower = values - most[group.owners]
    return lower - lower.new_zeros(count).index_add(0, group.owners, lower.exp()).log()[group.owners]


LOSSES: dict[Loss, Callable[[Comparison, StepTexts], Iterator[LossPart]]] = {
    "infonce": _infonce,
    "cosent": _cosent,
    "cosine_mse": _cosine_mse,
    "margin_mse": _margin_mse,
    "kl": _kl,
}


def _all(group: StepTexts) -> Tensor:
    return torch.arange(len(group.anchors), device=group.anchors.device)


def _some(count: int, candidates: int, device: torch.device) -> list[Tensor]:
    """Return the numbers of `count` anchors, in parts with at most AT_ONCE similarities."""
    size = max(1, AT_ONCE // max(candidates, 1))
    return [torch.arange(begin, min(begin + size, count), device=device) for begin in range(0, count, size)]
