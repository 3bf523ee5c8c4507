"""The cross-entropy of predicted tokens, computed in chunks that produce their gradients in the forward pass.

    hidden [N, D], table [V, D] -> chunks of scores [n, V] -> sum of weight * cross-entropy

The scores of a chunk exist only while its loss and gradients are computed, so memory does not grow with N and nothing
is computed twice. Sums over scores are in fp32, whatever the precision of the product.

If the rows of the table are split over ranks (tensor parallelism), each rank scores its own words. The ranks reduce the
highest score, the sum of exponentials and the target's score, and no rank holds all scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch import distributed as dist

from ordsmed.nn import products
from ordsmed.nn.context import Context
from ordsmed.nn.kernels import switch
from ordsmed.nn.shards import box_of, groups_of, local

CHUNK_SCORES = 1 << 24  # scores in a chunk on a CPU: 64 MB in fp32
DEVICE_SCORES = 1 << 28  # the same on a GPU; every chunk updates the gradient of the complete table
ALIGNMENT = 128  # fast 16-bit products of a GPU need row sizes divisible by it
LIFT = 5.0  # shares are multiplied by e^5 so that those of rare words do not underflow in fp16
CONFIDENT = 0.6875  # a loss below it means a target share above a half; exact in fp32, so that kernels agree
BY_HAND = ("cpu",)  # devices that use `_sums` and need no alignment
TILE = (1_024, 2_048)  # states and words scored at a time without gradients: 8 MB in fp32
MIN_SUM, MAX_SUM = 1e-20, 1e30  # sums of exp(score) in between are accurate without subtracting the highest score
SAFE = 60.0  # scores between -60 and 60 do not overflow: e^60 times a vocabulary size is below fp32's maximum


@dataclass(frozen=True)
class Range:
    """The range of words whose table rows are on this rank; other ranks of the group have the other words."""

    group: dist.ProcessGroup
    first: int
    count: int  # without padding rows
    rows: int  # with padding rows: equal on all ranks

    @staticmethod
    def of(table: Tensor, vocabulary: int) -> Range | None:
        groups = groups_of(table)
        if not groups:
            return None
        box = box_of(table)
        return Range(groups[0], box.start[0], max(min(box.size[0], vocabulary - box.start[0]), 0), box.size[0])

    def holds(self, targets: Tensor) -> Tensor:
        return (targets >= self.first) & (targets < self.first + self.count)

    def rows_of(self, targets: Tensor) -> Tensor:
        """Return the local rows of `targets`; words of other ranks get any row."""
        return (targets - self.first).clamp(0, max(self.count - 1, 0))

    def reduce(self, values: Tensor, by: dist.ReduceOp.RedOpType | None = None) -> Tensor:
        """All-reduce `values` in place over the ranks, by default as a sum."""
        dist.all_reduce(values, op=by or dist.ReduceOp.SUM, group=self.group)
        return values


class WordDraw(Protocol):
    """Draws a word for each slot from the scores of a loss; learn/sampling.py's `Draw` implements it."""

    @property
    def plain(self) -> bool:
        """Return whether words are drawn from the softmax of the loss itself, without temperature or other changes."""

    @property
    def slot_keys(self) -> Tensor:
        """Return the hash key of each slot's noise."""

    def tempered(self, scores: Tensor, targets: Tensor, first: int = 0) -> Tensor:
        """Return the scores that words are drawn from."""

    def sums(self, shares: Tensor, first: int = 0) -> Tensor:
        """Return the sum of the shares of each block of words."""

    def block(self, sums: Tensor, slots: slice) -> Tensor:
        """Draw a block of words for each slot."""

    def word(self, shares: Tensor, block: Tensor, slots: slice, first: int = 0) -> tuple[Tensor, Tensor]:
        """Draw a word within its block for each slot, and return its noisy score and its column."""


def token_loss(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, vocabulary: int | None = None
) -> Tensor:
    """Return the sum over slots of weight * -log softmax(hidden @ table.T + bias)[target].

    Rows of the table beyond `vocabulary` are padding and ignored.
    """
    return _loss(hidden, table, bias, targets, weights, vocabulary, None)[0]


def token_loss_and_draws(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    weights: Tensor,
    vocabulary: int,
    draw: WordDraw,
) -> tuple[Tensor, Tensor]:
    """Return `token_loss` and a word for every slot, drawn by `draw` from the same scores without gradient."""
    loss, drawn = _loss(hidden, table, bias, targets, weights, vocabulary, draw)
    return loss, drawn.view_as(targets)


def _loss(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    weights: Tensor,
    vocabulary: int | None,
    draw: WordDraw | None,
) -> tuple[Tensor, Tensor]:
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    table, bias, split = _local_part(table, bias, vocabulary)
    learns = torch.is_grad_enabled()  # inside an autograd.Function it is always False
    inputs = (hidden.flatten(0, -2), table, bias, targets.flatten(), weights.flatten(), split, draw, learns)
    summed: tuple[Tensor, Tensor] = _TokenLoss.apply(*inputs)  # type: ignore[no-untyped-call]
    return summed


def sampled_loss(
    hidden: Tensor,
    target_rows: tuple[Tensor, Tensor],
    candidate_rows: tuple[Tensor, Tensor],
    targets: Tensor,
    weights: Tensor,
    candidates: Tensor,
) -> Tensor:
    """Return the loss of a sampled softmax, where the candidates [S] represent all words other than the target.

    `target_rows` are the targets' rows of the table, [N, D], and their biases; `candidate_rows` are those of the
    candidates. The caller has subtracted the log of each word's expected count from the biases. A candidate that equals
    a slot's target is ignored in that slot.
    """
    hidden, targets, weights = hidden.flatten(0, -2), targets.flatten(), weights.flatten()
    right = (hidden * target_rows[0]).sum(-1, dtype=torch.float32) + target_rows[1]
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    loss: Tensor = _SampledLoss.apply(hidden, *candidate_rows, right, targets, weights, candidates)  # type: ignore[no-untyped-call]
    return loss


def token_hits(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, vocabulary: int | None = None
) -> Tensor:
    """Return the sum of the weights of the slots whose target has the highest score."""
    table, bias, split = _local_part(table, bias, vocabulary)
    hidden, targets, weights = hidden.flatten(0, -2), targets.flatten(), weights.flatten()
    hits = hidden.new_zeros((), dtype=torch.float32)
    product, bias = _aligned(table, bias, hidden)  # padding has the score minus infinity
    for rows in _chunks(len(hidden), len(table) if split is None else split.rows, _chunk_limit(hidden.device)):
        scores = torch.nn.functional.linear(hidden[rows], product, bias)
        best = scores.argmax(-1) if split is None else _best(scores, split)
        hits += ((best == targets[rows]) * weights[rows]).sum()
    return hits


def token_logs(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    vocabulary: int | None = None,
    *,
    states: Tensor | None = None,
    best: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return log softmax(hidden @ table.T + bias)[target] of each slot, and whether the target has the highest score.

    Args:
        states: index of each slot's state in `hidden`, if several slots share a state.
        best: compute the second result; it is False otherwise.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    table, bias, split = _local_part(table, bias, vocabulary)
    table, bias = table.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    states = torch.arange(len(hidden), device=hidden.device) if states is None else states
    total, top = _exponentials(hidden, table, bias, None), torch.zeros(len(hidden), device=hidden.device)
    if split is not None:
        total = split.reduce(total)
    if not bool(((total > MIN_SUM) & (total < MAX_SUM)).all()):  # overflow or underflow: subtract the highest score
        top = _highest_of_all(hidden, table, bias)[0]
        top = top if split is None else split.reduce(top, dist.ReduceOp.MAX)
        total = _exponentials(hidden, table, bias, top)
        total = total if split is None else split.reduce(total)
    logs = _scores_of(hidden, table, bias, targets, states, split) - (total.log() + top)[states]
    if not best:
        return logs, torch.zeros_like(targets, dtype=torch.bool)
    value, column = _highest_of_all(hidden, table, bias)
    chosen = column if split is None else _ranks_best(value, column, split)
    return logs, chosen[states] == targets


def _scores_of(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, states: Tensor, split: Range | None
) -> Tensor:
    at = targets if split is None else split.rows_of(targets)
    if not len(table):
        scores = torch.zeros(len(targets), device=hidden.device)
    else:
        scores = (hidden.float()[states] * table[at].float()).sum(-1)
        scores = scores if bias is None else scores + bias[at]
    return scores if split is None else split.reduce(torch.where(split.holds(targets), scores, 0.0))


def _exponentials(hidden: Tensor, table: Tensor, bias: Tensor | None, top: Tensor | None) -> Tensor:
    total = torch.zeros(len(hidden), device=hidden.device)
    for rows, scores, _ in _tiles(hidden, table, bias):
        scores = scores if top is None else scores.sub_(top[rows, None])
        total[rows] += scores.exp_().sum(1)
    return total


def _highest_of_all(hidden: Tensor, table: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return each state's highest score and its column, the first of equal ones."""
    value, column = _no_scores(hidden.float())
    for rows, scores, first in _tiles(hidden, table, bias):
        best, at = scores.max(1)
        higher = best > value[rows]
        column[rows] = torch.where(higher, at + first, column[rows])
        value[rows] = torch.where(higher, best, value[rows])
    return value, column


def _tiles(hidden: Tensor, table: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor, int]]:
    most = TILE[0] * TILE[1] if hidden.device.type in BY_HAND else DEVICE_SCORES
    chunks = _chunks(len(hidden), TILE[1], most)
    buffer = hidden.new_empty(chunks[0].stop * TILE[1] if chunks else 0, dtype=torch.float32)
    for rows in chunks:
        for first in range(0, len(table), TILE[1]):
            words = table[first : first + TILE[1]]
            out = buffer[: (rows.stop - rows.start) * len(words)].view(-1, len(words))
            biases = None if bias is None else bias[first : first + TILE[1]]
            yield rows, _scores(hidden[rows], words, biases, out), first


def token_scores(hidden: Tensor, table: Tensor, bias: Tensor | None = None, vocabulary: int | None = None) -> Tensor:
    """Return the fp32 scores of all words, [N, D] -> [N, V]; if the table is split, on every rank."""
    group = Range.of(table, vocabulary or len(table))
    if products.by_onednn(hidden, local(table)):
        scores = products.times(hidden, local(table))
    elif hidden.device.type == "cpu" and len(hidden) > 1:  # faster than the product with more columns than rows
        scores = torch.mm(local(table), hidden.T.contiguous()).T.contiguous().float()
    else:
        scores = torch.nn.functional.linear(hidden, local(table)).float()
    scores = scores if bias is None else scores.add_(local(bias))
    if group is None:
        return scores[:, :vocabulary]
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size(group.group))]
    dist.all_gather(parts, scores, group=group.group)
    return torch.cat(parts, 1)[:, :vocabulary]


def _local_part(
    table: Tensor, bias: Tensor | None, vocabulary: int | None
) -> tuple[Tensor, Tensor | None, Range | None]:
    """Return the local rows of table and bias, and the range if the table is split.

    Padding rows are removed, except for a split table on a GPU, where all ranks keep equal sizes and the bias of
    padding rows is minus infinity.
    """
    vocabulary = vocabulary or len(table)
    split = Range.of(table, vocabulary)
    if split is not None and local(table).device.type not in BY_HAND:
        return local(table), _without_padding(local(table), bias, split), split
    count = vocabulary if split is None else split.count
    if split is None and count == len(table):
        return table, bias, None
    return local(table)[:count], None if bias is None else local(bias)[:count], split


def _without_padding(table: Tensor, bias: Tensor | None, split: Range) -> Tensor | None:
    """Return the local bias with minus infinity for padding rows, so that they have no probability."""
    if split.count == len(table):
        return None if bias is None else local(bias)
    whole = table.new_zeros(len(table)) if bias is None else local(bias)
    return whole.masked_fill(torch.arange(len(table), device=table.device) >= split.count, -torch.inf)


def _best(scores: Tensor, split: Range) -> Tensor:
    value, column = scores.max(-1) if split.count else _no_scores(scores)
    return _ranks_best(value, column, split)


def _drawn(draw: WordDraw, shares: Tensor, sums: Tensor, slots: slice, split: Range | None) -> Tensor:
    block = draw.block(sums, slots)
    if split is None:
        return draw.word(shares, block, slots)[1]
    value, column = draw.word(shares, block, slots, split.first) if split.count else _no_scores(shares)
    return _ranks_best(value, column, split)


def _drawn_tempered(draw: WordDraw, scores: Tensor, targets: Tensor, slots: slice, split: Range | None) -> Tensor:
    first = split.first if split else 0
    shares = draw.tempered(scores, targets, first)
    shares.sub_(_highest(shares, split)[:, None]).exp_()
    sums = draw.sums(shares, first)
    return _drawn(draw, shares, split.reduce(sums) if split else sums, slots, split)


def _ranks_best(value: Tensor, column: Tensor, split: Range) -> Tensor:
    highest = split.reduce(value.clone(), dist.ReduceOp.MAX)
    far = torch.iinfo(torch.int64).max
    return split.reduce(
        torch.where((value == highest) & (split.count > 0), column + split.first, far), dist.ReduceOp.MIN
    )


def _no_scores(scores: Tensor) -> tuple[Tensor, Tensor]:
    none = scores.new_full((len(scores),), -torch.inf)
    return none, torch.zeros_like(none, dtype=torch.int64)


class _TokenLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor,
        split: Range | None,
        draw: WordDraw | None,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        drawn = torch.empty(len(hidden) if draw else 0, dtype=torch.int64, device=hidden.device)
        learns = learns and any(ctx.needs_input_grad[:3])
        alone = split is None and hidden.device.type not in BY_HAND
        sums = _sums_on_device if alone else _sums
        of_table = learns and ctx.needs_input_grad[1]
        loss, gradients = sums(hidden, table, bias, targets, weights, split, draw, drawn, learns, of_table=of_table)
        if gradients:
            ctx.save_for_backward(*gradients.finish(targets, weights, split))
        ctx.dtypes = hidden.dtype, table.dtype, None if bias is None else bias.dtype
        ctx.mark_non_differentiable(drawn)
        return loss, drawn

    @staticmethod
    def backward(ctx: Context, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        # the loss is a scalar, so its gradient only scales the saved gradients, in fp32 because rounding the factor to
        # 16 bits would bias all elements in the same direction
        learned = [
            None if gradient is None else gradient.float().mul_(upstream[0]).to(ctx.dtypes[n])
            for n, gradient in enumerate(ctx.saved_tensors)
        ]
        return learned[0], learned[1], learned[2] if len(learned) > 2 else None, None, None, None, None, None


def _sums(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    weights: Tensor,
    split: Range | None,
    draw: WordDraw | None,
    drawn: Tensor,
    learns: bool,
    *,
    of_table: bool,
) -> tuple[Tensor, _Gradients | None]:
    product, loss = table.to(hidden.dtype), hidden.new_zeros((), dtype=torch.float32)
    gradients = _Gradients(hidden, product, bias, of_table=of_table) if learns else None
    chunks = _chunks(len(hidden), len(table) if split is None else split.rows, _chunk_limit(hidden.device))
    buffer = hidden.new_empty((chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
    for rows in chunks:
        scores = _scores(hidden[rows], product, bias, buffer[: rows.stop - rows.start])
        words = scores if split is None else scores[:, : split.count]
        plain = draw if draw is not None and draw.plain else None  # draws from the shares of the loss
        if draw is not None and plain is None:
            drawn[rows] = _drawn_tempered(draw, words, targets[rows], rows, split)
        if split is None:
            right = scores.gather(1, targets[rows, None]).squeeze(1)
            right -= _shift(scores, hidden.dtype)
        else:
            right = _shift_split(scores, targets[rows], split)
        scores.exp_()
        sums = plain.sums(words, split.first if split else 0) if plain else scores.sum(1, keepdim=True)
        if split is not None:
            sums, right = split.reduce(torch.cat([sums, right[:, None]], 1)).tensor_split([-1], 1)
            right = right.squeeze(1)
        total = sums.sum(1)
        if plain:
            drawn[rows] = _drawn(plain, words, sums, rows, split)
        losses = total.log() - right
        loss += (weights[rows] * losses).sum()
        if gradients:
            subtract_first = hidden.dtype != torch.float32
            if subtract_first:
                _subtract_targets(scores, total, losses, targets[rows], split)
            gradients.add(rows, scores, weights[rows] / total, losses if subtract_first else None)
    return loss, gradients


def _subtract_targets(scores: Tensor, total: Tensor, losses: Tensor, targets: Tensor, split: Range | None) -> None:
    """Subtract 1 from the targets' shares, in place, before they are rounded to 16 bits.

    This is done only for confident targets (loss below CONFIDENT); rounding loses less of the smaller other shares.
    """
    if not scores.shape[1]:
        return
    likely = losses < CONFIDENT if split is None else (losses < CONFIDENT) & split.holds(targets)
    columns = targets if split is None else split.rows_of(targets)
    scores.scatter_add_(1, columns[:, None], torch.where(likely, -total, 0.0)[:, None])


def _sums_on_device(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    weights: Tensor,
    split: Range | None,
    draw: WordDraw | None,
    drawn: Tensor,
    learns: bool,
    *,
    of_table: bool,
) -> tuple[Tensor, _Gradients | None]:
    words, by_kernel = len(table), switch.runs("cross_entropy", hidden.device)
    shares_of, most = (_shares_by_kernel, 2 * DEVICE_SCORES) if by_kernel else (_shares_by_torch, DEVICE_SCORES)
    product, added = _aligned(table, bias, hidden)
    loss = hidden.new_zeros((), dtype=torch.float32)
    of_bias = added if bias is not None else None
    gradients = _Gradients(hidden, product, of_bias, words, of_table=of_table) if learns else None
    lift = LIFT if hidden.dtype == torch.float16 else 0.0
    for rows in _chunks(len(hidden), words, most):
        scores = hidden[rows] @ product.T if added is None else torch.addmm(added, hidden[rows], product.T)
        plain = draw if draw is not None and draw.plain else None
        if draw is not None and plain is None:
            drawn[rows] = _drawn_tempered(draw, scores[:, :words].float(), targets[rows], rows, None)
        losses, shares, word = shares_of(scores, targets[rows], words, plain, rows, lift, learns)
        loss += (weights[rows] * losses).sum()
        if plain:
            drawn[rows] = word
        if gradients:
            gradients.add(rows, shares, weights[rows] * math.exp(-lift), losses)
    return loss, gradients


def _shares_by_torch(
    scores: Tensor, targets: Tensor, words: int, draw: WordDraw | None, slots: slice, lift: float, learns: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of rows, their shares times e^lift, and drawn words, by torch's kernels in fp32.

    1 is subtracted from the shares of confident targets before they are rounded.
    """
    logs = torch.log_softmax(scores.float(), 1)
    losses = torch.nn.functional.nll_loss(logs, targets, reduction="none")
    if draw is None and not learns:
        return losses, logs, targets
    logs = logs.add_(lift) if lift else logs
    shares = torch.exp(logs, out=scores) if draw is None and scores.dtype != torch.float32 else logs.exp_()
    drawn = targets
    if draw is not None:
        drawn = _drawn(draw, shares[:, :words], draw.sums(shares[:, :words]), slots, None)
    of_targets = torch.exp(lift - losses).add_(losses < CONFIDENT, alpha=-math.exp(lift))
    return losses, shares.scatter_(1, targets[:, None], of_targets[:, None].to(shares.dtype)), drawn


def _shares_by_kernel(
    scores: Tensor, targets: Tensor, words: int, draw: WordDraw | None, slots: slice, lift: float, learns: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from ordsmed.nn.kernels.cross_entropy import cross_entropy  # needs Triton, which `switch` has checked

    keys = None if draw is None else draw.slot_keys[slots]
    losses, drawn = cross_entropy(scores, targets, words, keys=keys, lift=lift, shares=learns)
    return losses, scores, drawn


def _aligned(table: Tensor, bias: Tensor | None, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return table and bias in the precision of the product.

    In 16 bits on a GPU, rows with bias minus infinity are appended, up to a multiple of ALIGNMENT.
    """
    more = -len(table) % ALIGNMENT if hidden.dtype != torch.float32 and hidden.device.type not in BY_HAND else 0
    if not more:
        return table.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    bias = table.new_zeros(len(table)) if bias is None else bias
    product = hidden.new_zeros(len(table) + more, table.shape[1])
    product[: len(table)] = table
    return product, torch.nn.functional.pad(bias.to(hidden.dtype), (0, more), value=-torch.inf)


class _SampledLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        hidden: Tensor,
        table: Tensor,
        bias: Tensor,
        right: Tensor,
        targets: Tensor,
        weights: Tensor,
        candidates: Tensor,
    ) -> Tensor:
        product, loss = table.to(hidden.dtype), hidden.new_zeros((), dtype=torch.float32)
        gradients = _Gradients(hidden, product, bias) if any(ctx.needs_input_grad[:4]) else None
        to_right = torch.empty_like(right)
        order = candidates.argsort()
        chunks = _chunks(len(hidden), len(table), _chunk_limit(hidden.device))
        buffer = hidden.new_empty((chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
        for rows in chunks:
            scores = _scores(hidden[rows], product, bias, buffer[: rows.stop - rows.start])
            location = torch.searchsorted(candidates, targets[rows], sorter=order).clamp_(max=len(candidates) - 1)
            hit = order[location]
            missed = candidates[hit] != targets[rows]
            scores.scatter_add_(1, hit[:, None], torch.where(missed, 0.0, -torch.inf)[:, None])
            top = torch.maximum(scores.amax(1), right[rows])
            of_target = (right[rows] - top).exp()
            total = scores.sub_(top[:, None]).exp_().sum(1) + of_target
            loss += (weights[rows] * (total.log() + top - right[rows])).sum()
            to_right[rows] = weights[rows] * (of_target / total - 1)
            if gradients:
                gradients.add(rows, scores, weights[rows] / total)
        if gradients:
            ctx.save_for_backward(gradients.to_hidden, gradients.to_table, gradients.to_bias, to_right)
        ctx.dtypes = hidden.dtype, table.dtype, bias.dtype, right.dtype
        return loss

    @staticmethod
    def backward(ctx: Context, upstream: Tensor) -> tuple[Tensor | None, ...]:
        learned = (
            gradient.float().mul_(upstream).to(kind)
            for gradient, kind in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return (*learned, None, None, None)


def _shift_split(scores: Tensor, targets: Tensor, split: Range) -> Tensor:
    scores.sub_(_highest(scores, split)[:, None])
    if not split.count:
        return scores.new_zeros(len(scores))
    return torch.where(split.holds(targets), scores.gather(1, split.rows_of(targets)[:, None]).squeeze(1), 0.0)


def _highest(scores: Tensor, split: Range | None) -> Tensor:
    top = scores.amax(1) if scores.shape[1] else scores.new_full((len(scores),), -torch.inf)
    return top if split is None else split.reduce(top, dist.ReduceOp.MAX)


class _Gradients:
    """The gradients of the loss for hidden states, table and bias, accumulated chunk by chunk.

    The gradient of a row's scores, weight * (exp(score) / total - onehot), is never materialized: weight / total scales
    the narrow factor of each product, and the onehot part is subtracted at the end, or earlier for confident targets.
    """

    def __init__(
        self, hidden: Tensor, table: Tensor, bias: Tensor | None, words: int | None = None, *, of_table: bool = True
    ) -> None:
        """`words`: number of rows of the table before padding; `of_table`: compute the table's gradient."""
        self.hidden, self.table, self.words = hidden, table, words
        self.to_hidden = torch.empty_like(hidden)
        empty = torch.zeros(table.shape if not len(hidden) else (0,), device=table.device)
        self.to_table: Tensor | None = empty if of_table else None
        self.to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        self.losses: list[Tensor] = []

    def add(self, rows: slice, shares: Tensor, factor: Tensor, losses: Tensor | None = None) -> None:
        """Add one chunk. `shares` are exp(scores), `factor` is weight / total.

        Pass the `losses` of the rows if the targets' part is already subtracted in rows with a loss below CONFIDENT.
        """
        self.losses += [] if losses is None else [losses]
        if self.to_bias is not None and shares.dtype == torch.float32:
            self.to_bias.addmv_(shares.T, factor)
        elif self.to_bias is not None:
            self.to_bias += shares.T @ factor.to(shares.dtype)
        shares, factor = shares.to(self.hidden.dtype), factor[:, None]  # the factor stays in fp32, for all of its row
        by_onednn = products.by_onednn(shares, self.table)
        if by_onednn:
            torch.mul(products.times(shares, self.table.T), factor, out=self.to_hidden[rows])
        else:
            torch.mm(shares, self.table, out=self.to_hidden[rows]).mul_(factor)
        if self.to_table is None:
            return
        weighted = torch.mul(self.hidden[rows], factor, out=torch.empty_like(self.hidden[rows]))
        if by_onednn:
            to_table = products.across(shares, weighted)
            self.to_table = to_table if rows.start == 0 else self.to_table.add_(to_table)
        elif rows.start == 0:
            self.to_table = (shares.T @ weighted).float()
        elif shares.dtype == torch.float32:
            self.to_table.addmm_(shares.T, weighted)
        else:
            self.to_table += shares.T @ weighted

    def finish(self, targets: Tensor, weights: Tensor, split: Range | None) -> list[Tensor | None]:
        """Subtract the targets' part, sum the gradient of hidden states over the ranks, and return all gradients."""
        if self.losses:
            weights = weights * (torch.cat(self.losses) >= CONFIDENT)
        if split is not None:
            weights, targets = torch.where(split.holds(targets), weights, 0.0), split.rows_of(targets)
        if len(self.table):
            weight = weights[:, None].to(self.hidden.dtype)
            self.to_hidden -= self.table[targets] * weight
            if self.to_table is not None:
                self.to_table.index_add_(0, targets, (self.hidden * weight).float(), alpha=-1)
            if self.to_bias is not None:
                self.to_bias.index_add_(0, targets, weights, alpha=-1)
        if split is not None:
            self.to_hidden = split.reduce(self.to_hidden)
        to_bias = [] if self.to_bias is None else [self.to_bias[: self.words]]
        return [self.to_hidden, None if self.to_table is None else self.to_table[: self.words], *to_bias]


def _scores(hidden: Tensor, table: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    if products.by_onednn(hidden, table):
        return products.times(hidden, table, bias)
    if hidden.dtype == torch.float32:
        torch.mm(hidden, table.T, out=out)
    else:
        out.copy_(hidden @ table.T)
    return out if bias is None else out.add_(bias)


def _shift(scores: Tensor, product: torch.dtype) -> Tensor:
    """Subtract each row's highest score, in place, and return it; skip this, and return 0, if nothing can overflow."""
    top = scores.amax(1)
    wide = (
        product != torch.float16
    )  # gradient products use the exponentials in this precision, and fp16 overflows at e^11
    if wide and scores.device.type == "cpu" and float(top.max()) < SAFE and float(top.min()) > -SAFE:
        return torch.zeros_like(top)  # saves a pass over all scores; on a GPU the check would be slower
    scores.sub_(top[:, None])
    return top


def _chunk_limit(device: torch.device) -> int:
    return CHUNK_SCORES if device.type in BY_HAND else DEVICE_SCORES


def _chunks(rows: int, vocabulary: int, most: int) -> list[slice]:
    """Return slices of about equal size with at most `most` scores each."""
    count = max(-(-rows * vocabulary // most), 1)
    size = max(-(-rows // count), 1)
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]
