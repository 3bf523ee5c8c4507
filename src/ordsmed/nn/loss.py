"""The loss of predicted tokens, in chunks that make their gradient in the forward pass.

    hidden [N, D], table [V, D] -> chunks of scores [n, V] -> sum of weight * cross-entropy

A chunk's scores live only while its loss and gradient are made, so memory does not grow with N and nothing is computed
twice. Scores are summed up in fp32 whatever the precision of the product.

Where the table's rows are split over ranks (tensor parallelism), each scores its own words; the highest score, the sum
of exponentials and the target's score are agreed on, and no rank ever holds all scores.
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

CHUNK_SCORES = 1 << 24  # scores that a CPU holds at a time: 64 MB in fp32
DEVICE_SCORES = 1 << 28  # that a GPU does, and their logs; each chunk rewrites the gradients of the whole table
PITCH = 128  # a GPU's fast 16-bit products want rows that begin at such multiples
LIFT = 5.0  # e to it, less than 150, times shares: those of rare words are numbers in fp16 as well
CONFIDENT = 0.6875  # of losses below it targets' shares are above a half; exact in fp32: a kernel compares with it too
BY_HAND = ("cpu",)  # devices where passes over scores are left out that need not be, and rows begin anywhere
TILE = (1_024, 2_048)  # states and words that are scored at a time where nothing is learned: 8 MB in fp32
FAINT, LOUD = 1e-20, 1e30  # sums of e to scores that are exact without taking the highest off
SAFE = 60.0  # e^60 times any vocabulary is far from fp32's largest number


@dataclass(frozen=True)
class Range:
    """The words whose rows lie on this rank; the others lie on the other ranks of the group."""

    group: dist.ProcessGroup
    first: int
    count: int  # rows of padding behind the vocabulary not counted
    rows: int  # with them: the same on every rank

    @staticmethod
    def of(table: Tensor, vocabulary: int) -> Range | None:
        """The range of a table split by rows; None where it is whole."""
        groups = groups_of(table)
        if not groups:
            return None
        box = box_of(table)
        return Range(groups[0], box.start[0], max(min(box.size[0], vocabulary - box.start[0]), 0), box.size[0])

    def holds(self, targets: Tensor) -> Tensor:
        """Which targets are words of this rank."""
        return (targets >= self.first) & (targets < self.first + self.count)

    def rows_of(self, targets: Tensor) -> Tensor:
        """Which of this rank's rows; any of them for words of other ranks."""
        return (targets - self.first).clamp(0, max(self.count - 1, 0))

    def agree(self, values: Tensor, by: dist.ReduceOp.RedOpType | None = None) -> Tensor:
        """The sum (or largest, or smallest) over the ranks of the group."""
        dist.all_reduce(values, op=by or dist.ReduceOp.SUM, group=self.group)
        return values


class WordDraw(Protocol):
    """How a word is drawn for each slot from the scores of a loss: learn/sampling.py's `Draw`."""

    @property
    def plain(self) -> bool:
        """Are words drawn by the very shares that the loss is made of?"""

    @property
    def slot_keys(self) -> Tensor:
        """What the noise of each slot is hashed from."""

    def tempered(self, scores: Tensor, targets: Tensor, first: int = 0) -> Tensor:
        """The scores that words are drawn by."""

    def sums(self, shares: Tensor, first: int = 0) -> Tensor:
        """The shares of each block added up."""

    def block(self, sums: Tensor, slots: slice) -> Tensor:
        """The block that each slot draws."""

    def word(self, shares: Tensor, block: Tensor, slots: slice, first: int = 0) -> tuple[Tensor, Tensor]:
        """The word that each slot draws within its block, and how high it scores."""


def token_loss(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, vocabulary: int | None = None
) -> Tensor:
    """Sum over slots of weight * -log softmax(hidden @ table.T + bias)[target]; rows behind the vocabulary are void."""
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
    """The same, and a word drawn for every slot from the same scores; nothing is learned through the draws.

    `draw` is learn/sampling.py's.
    """
    loss, drawn = _loss(hidden, table, bias, targets, weights, vocabulary, draw)
    return loss, drawn.view_as(targets)


def _loss(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, vocabulary: int | None,
    draw: WordDraw | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    table, bias, split = _own_rows(table, bias, vocabulary)
    learns = torch.is_grad_enabled()  # within a function of autograd it never is
    inputs = (hidden.flatten(0, -2), table, bias, targets.flatten(), weights.flatten(), split, draw, learns)
    summed: tuple[Tensor, Tensor] = _TokenLoss.apply(*inputs)  # type: ignore[no-untyped-call]
    return summed


def sampled_loss(
    hidden: Tensor, target_rows: tuple[Tensor, Tensor], candidate_rows: tuple[Tensor, Tensor], targets: Tensor,
    weights: Tensor, candidates: Tensor,
) -> Tensor:  # fmt: skip
    """The same where some candidates, [S], stand for all words that are not the target (a sampled softmax).

    `target_rows` are the targets' rows of the table, [N, D], and their biases; `candidate_rows` the candidates'. The
    logs of how often each is expected to be drawn are taken off the biases. A candidate that is a slot's target does
    not count there.
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
    """Sum over slots of weight where the target has the highest score."""
    table, bias, split = _own_rows(table, bias, vocabulary)
    hidden, targets, weights = hidden.flatten(0, -2), targets.flatten(), weights.flatten()
    hits = hidden.new_zeros((), dtype=torch.float32)
    product, bias = _aligned(table, bias, hidden)  # what is behind the vocabulary is never the best
    for rows in _chunks(len(hidden), len(table) if split is None else split.rows, _most(hidden.device)):
        scores = torch.nn.functional.linear(hidden[rows], product, bias)
        best = scores.argmax(-1) if split is None else _best(scores, split)
        hits += ((best == targets[rows]) * weights[rows]).sum()
    return hits


def token_logs(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, vocabulary: int | None = None, *,
    states: Tensor | None = None, best: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """log softmax(hidden @ table.T + bias)[target] of each slot, and with `best` where no word is likelier.

    `states`: which of the states, [N], each slot asks, where several ask the same one.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    table, bias, split = _own_rows(table, bias, vocabulary)
    table, bias = table.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    states = torch.arange(len(hidden), device=hidden.device) if states is None else states
    total, top = _exponentials(hidden, table, bias, None), torch.zeros(len(hidden), device=hidden.device)
    if split is not None:
        total = split.agree(total)
    if not bool(((total > FAINT) & (total < LOUD)).all()):  # e to some scores is no number: take the highest off
        top = _highest_of_all(hidden, table, bias)[0]
        top = top if split is None else split.agree(top, dist.ReduceOp.MAX)
        total = _exponentials(hidden, table, bias, top)
        total = total if split is None else split.agree(total)
    logs = _scores_of(hidden, table, bias, targets, states, split) - (total.log() + top)[states]
    if not best:
        return logs, torch.zeros_like(targets, dtype=torch.bool)
    value, column = _highest_of_all(hidden, table, bias)
    chosen = column if split is None else _agreed_best(value, column, split)
    return logs, chosen[states] == targets


def _scores_of(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, states: Tensor, split: Range | None
) -> Tensor:
    """Each slot's score of its target."""
    at = targets if split is None else split.rows_of(targets)
    if not len(table):
        scores = torch.zeros(len(targets), device=hidden.device)
    else:
        scores = (hidden.float()[states] * table[at].float()).sum(-1)
        scores = scores if bias is None else scores + bias[at]
    return scores if split is None else split.agree(torch.where(split.holds(targets), scores, 0.0))


def _exponentials(hidden: Tensor, table: Tensor, bias: Tensor | None, top: Tensor | None) -> Tensor:
    """Each state's sum of e to its scores, less `top`: in tiles that stay in the cache."""
    total = torch.zeros(len(hidden), device=hidden.device)
    for rows, scores, _ in _tiles(hidden, table, bias):
        scores = scores if top is None else scores.sub_(top[rows, None])
        total[rows] += scores.exp_().sum(1)
    return total


def _highest_of_all(hidden: Tensor, table: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each state's highest score and the word that has it, the first of equals."""
    value, column = _nothing(hidden.float())
    for rows, scores, first in _tiles(hidden, table, bias):
        best, at = scores.max(1)
        higher = best > value[rows]
        column[rows] = torch.where(higher, at + first, column[rows])
        value[rows] = torch.where(higher, best, value[rows])
    return value, column


def _tiles(hidden: Tensor, table: Tensor, bias: Tensor | None) -> Iterator[tuple[slice, Tensor, int]]:
    """Scores of some states for some words at a time, in fp32: which states, the scores, the first of the words."""
    most = TILE[0] * TILE[1] if hidden.device.type in BY_HAND else DEVICE_SCORES
    chunks = _chunks(len(hidden), TILE[1], most)
    room = hidden.new_empty(chunks[0].stop * TILE[1] if chunks else 0, dtype=torch.float32)
    for rows in chunks:
        for first in range(0, len(table), TILE[1]):
            words = table[first : first + TILE[1]]
            out = room[: (rows.stop - rows.start) * len(words)].view(-1, len(words))
            biases = None if bias is None else bias[first : first + TILE[1]]
            yield rows, _scores(hidden[rows], words, biases, out), first


def token_scores(hidden: Tensor, table: Tensor, bias: Tensor | None = None, vocabulary: int | None = None) -> Tensor:
    """The scores of all words, [N, D] -> [N, V], in fp32; where the rows are split every rank gets those of all."""
    group = Range.of(table, vocabulary or len(table))
    if products.by_onednn(hidden, local(table)):
        scores = products.times(hidden, local(table))
    elif hidden.device.type == "cpu" and len(hidden) > 1:  # a CPU is faster at a tall product than at a wide one
        scores = torch.mm(local(table), hidden.T.contiguous()).T.contiguous().float()
    else:
        scores = torch.nn.functional.linear(hidden, local(table)).float()
    scores = scores if bias is None else scores.add_(local(bias))
    if group is None:
        return scores[:, :vocabulary]
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size(group.group))]
    dist.all_gather(parts, scores, group=group.group)
    return torch.cat(parts, 1)[:, :vocabulary]


def _own_rows(table: Tensor, bias: Tensor | None, vocabulary: int | None) -> tuple[Tensor, Tensor | None, Range | None]:
    """The rows that are scored here, without padding; a GPU keeps that of split ones, which then are even on each."""
    vocabulary = vocabulary or len(table)
    split = Range.of(table, vocabulary)
    if split is not None and local(table).device.type not in BY_HAND:
        return local(table), _without_padding(local(table), bias, split), split
    count = vocabulary if split is None else split.count
    if split is None and count == len(table):
        return table, bias, None
    return local(table)[:count], None if bias is None else local(bias)[:count], split


def _without_padding(table: Tensor, bias: Tensor | None, split: Range) -> Tensor | None:
    """The words' bias on this rank: minus infinity for rows of padding, so that they score nothing."""
    if split.count == len(table):
        return None if bias is None else local(bias)
    whole = table.new_zeros(len(table)) if bias is None else local(bias)
    return whole.masked_fill(torch.arange(len(table), device=table.device) >= split.count, -torch.inf)


def _best(scores: Tensor, split: Range) -> Tensor:
    """The word with the highest score of all ranks, the first of equals."""
    value, column = scores.max(-1) if split.count else _nothing(scores)
    return _agreed_best(value, column, split)


def _drawn(draw: WordDraw, shares: Tensor, sums: Tensor, slots: slice, split: Range | None) -> Tensor:
    """A word for each slot, from its shares and their sums by block."""
    block = draw.block(sums, slots)
    if split is None:
        return draw.word(shares, block, slots)[1]
    value, column = draw.word(shares, block, slots, split.first) if split.count else _nothing(shares)
    return _agreed_best(value, column, split)


def _drawn_otherwise(draw: WordDraw, scores: Tensor, targets: Tensor, slots: slice, split: Range | None) -> Tensor:
    """The same where words are drawn by other shares than the loss is made of."""
    first = split.first if split else 0
    shares = draw.tempered(scores, targets, first)
    shares.sub_(_highest(shares, split)[:, None]).exp_()
    sums = draw.sums(shares, first)
    return _drawn(draw, shares, split.agree(sums) if split else sums, slots, split)


def _agreed_best(value: Tensor, column: Tensor, split: Range) -> Tensor:
    """This rank's best scores and their columns -> the words that are best on all ranks, the first of equals."""
    highest = split.agree(value.clone(), dist.ReduceOp.MAX)
    far = torch.iinfo(torch.int64).max
    return split.agree(
        torch.where((value == highest) & (split.count > 0), column + split.first, far), dist.ReduceOp.MIN
    )


def _nothing(scores: Tensor) -> tuple[Tensor, Tensor]:
    """What a rank offers that holds no word."""
    none = scores.new_full((len(scores),), -torch.inf)
    return none, torch.zeros_like(none, dtype=torch.int64)


class _TokenLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor,
        split: Range | None, draw: WordDraw | None, learns: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
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
        # the loss is one number, so its gradient only scales what the forward made; in place, it is used once
        # (and in fp32: 16 bits would round the factor, the same way for every place)
        learned = [
            None if gradient is None else gradient.float().mul_(upstream[0]).to(ctx.dtypes[n])
            for n, gradient in enumerate(ctx.saved_tensors)
        ]
        return learned[0], learned[1], learned[2] if len(learned) > 2 else None, None, None, None, None, None


def _sums(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, split: Range | None,
    draw: WordDraw | None, drawn: Tensor, learns: bool, *, of_table: bool,
) -> tuple[Tensor, _Gradients | None]:  # fmt: skip
    """The summed loss, and its gradients where something learns; words are drawn into `drawn`."""
    product, loss = table.to(hidden.dtype), hidden.new_zeros((), dtype=torch.float32)
    gradients = _Gradients(hidden, product, bias, of_table=of_table) if learns else None
    chunks = _chunks(len(hidden), len(table) if split is None else split.rows, _most(hidden.device))
    room = hidden.new_empty((chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
    for rows in chunks:
        scores = _scores(hidden[rows], product, bias, room[: rows.stop - rows.start])
        words = scores if split is None else scores[:, : split.count]
        plain = draw if draw is not None and draw.plain else None  # by the shares that the loss is made of
        if draw is not None and plain is None:
            drawn[rows] = _drawn_otherwise(draw, words, targets[rows], rows, split)
        if split is None:
            right = scores.gather(1, targets[rows, None]).squeeze(1)
            right -= _shift(scores, hidden.dtype)
        else:
            right = _shift_agreed(scores, targets[rows], split)
        scores.exp_()
        sums = plain.sums(words, split.first if split else 0) if plain else scores.sum(1, keepdim=True)
        if split is not None:
            sums, right = split.agree(torch.cat([sums, right[:, None]], 1)).tensor_split([-1], 1)
            right = right.squeeze(1)
        total = sums.sum(1)
        if plain:
            drawn[rows] = _drawn(plain, words, sums, rows, split)
        losses = total.log() - right
        loss += (weights[rows] * losses).sum()
        if gradients:
            early = hidden.dtype != torch.float32
            if early:
                _subtract_targets(scores, total, losses, targets[rows], split)
            gradients.add(rows, scores, weights[rows] / total, losses if early else None)
    return loss, gradients


def _subtract_targets(scores: Tensor, total: Tensor, losses: Tensor, targets: Tensor, split: Range | None) -> None:
    """Make the targets' part of exp(scores) their gradients', in place, before 16 bits round it.

    Only of targets that are likelier than all else: the others' parts are the smaller number as they are.
    """
    if not scores.shape[1]:
        return
    likely = losses < CONFIDENT if split is None else (losses < CONFIDENT) & split.holds(targets)
    columns = targets if split is None else split.rows_of(targets)
    scores.scatter_add_(1, columns[:, None], torch.where(likely, -total, 0.0)[:, None])


def _sums_on_device(
    hidden: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, split: Range | None,
    draw: WordDraw | None, drawn: Tensor, learns: bool, *, of_table: bool,
) -> tuple[Tensor, _Gradients | None]:  # fmt: skip
    """The same by few passes over many scores."""
    words, by_kernel = len(table), switch.runs("cross_entropy", hidden.device)
    shares_of, most = (_by_kernel, 2 * DEVICE_SCORES) if by_kernel else (_by_torch, DEVICE_SCORES)
    product, added = _aligned(table, bias, hidden)
    loss = hidden.new_zeros((), dtype=torch.float32)
    of_bias = added if bias is not None else None
    gradients = _Gradients(hidden, product, of_bias, words, of_table=of_table) if learns else None
    lift = LIFT if hidden.dtype == torch.float16 else 0.0
    for rows in _chunks(len(hidden), words, most):
        scores = hidden[rows] @ product.T if added is None else torch.addmm(added, hidden[rows], product.T)
        plain = draw if draw is not None and draw.plain else None
        if draw is not None and plain is None:
            drawn[rows] = _drawn_otherwise(draw, scores[:, :words].float(), targets[rows], rows, None)
        losses, shares, word = shares_of(scores, targets[rows], words, plain, rows, lift, learns)
        loss += (weights[rows] * losses).sum()
        if plain:
            drawn[rows] = word
        if gradients:
            gradients.add(rows, shares, weights[rows] * math.exp(-lift), losses)
    return loss, gradients


def _by_torch(
    scores: Tensor, targets: Tensor, words: int, draw: WordDraw | None, slots: slice, lift: float, learns: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses of rows, their shares times e^lift, and words drawn: torch's own kernel takes the logs, in fp32.

    Confident targets' shares are less 1 by then, which is subtracted before they are rounded.
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


def _by_kernel(
    scores: Tensor, targets: Tensor, words: int, draw: WordDraw | None, slots: slice, lift: float, learns: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by one kernel, the shares in place of the scores."""
    from ordsmed.nn.kernels.cross_entropy import cross_entropy  # Triton's: where it is switched on it is there

    keys = None if draw is None else draw.slot_keys[slots]
    losses, drawn = cross_entropy(scores, targets, words, keys=keys, lift=lift, shares=learns)
    return losses, scores, drawn


def _aligned(table: Tensor, bias: Tensor | None, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
    """Table and bias in the precision of a product; in 16 bits with words behind the vocabulary that score nothing."""
    more = -len(table) % PITCH if hidden.dtype != torch.float32 and hidden.device.type not in BY_HAND else 0
    if not more:
        return table.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    bias = table.new_zeros(len(table)) if bias is None else bias
    product = hidden.new_zeros(len(table) + more, table.shape[1])
    product[: len(table)] = table
    return product, torch.nn.functional.pad(bias.to(hidden.dtype), (0, more), value=-torch.inf)


class _SampledLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context, hidden: Tensor, table: Tensor, bias: Tensor, right: Tensor, targets: Tensor, weights: Tensor,
        candidates: Tensor,
    ) -> Tensor:  # fmt: skip
        product, loss = table.to(hidden.dtype), hidden.new_zeros((), dtype=torch.float32)
        gradients = _Gradients(hidden, product, bias) if any(ctx.needs_input_grad[:4]) else None
        to_right = torch.empty_like(right)
        order = candidates.argsort()
        chunks = _chunks(len(hidden), len(table), _most(hidden.device))
        room = hidden.new_empty((chunks[0].stop if chunks else 0, len(table)), dtype=torch.float32)
        for rows in chunks:
            scores = _scores(hidden[rows], product, bias, room[: rows.stop - rows.start])
            place = torch.searchsorted(candidates, targets[rows], sorter=order).clamp_(max=len(candidates) - 1)
            hit = order[place]
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


def _shift_agreed(scores: Tensor, targets: Tensor, split: Range) -> Tensor:
    """Take the highest score of all ranks off, in place; what is left of the targets' own, 0 where elsewhere."""
    scores.sub_(_highest(scores, split)[:, None])
    if not split.count:
        return scores.new_zeros(len(scores))
    return torch.where(split.holds(targets), scores.gather(1, split.rows_of(targets)[:, None]).squeeze(1), 0.0)


def _highest(scores: Tensor, split: Range | None) -> Tensor:
    """Each slot's highest score, of all ranks."""
    top = scores.amax(1) if scores.shape[1] else scores.new_full((len(scores),), -torch.inf)
    return top if split is None else split.agree(top, dist.ReduceOp.MAX)


class _Gradients:
    """What the loss means for hidden states, table and bias, collected chunk by chunk.

    The gradient of a row's scores is weight * (exp(score) / total - onehot). It is never written out: weight / total
    scales the narrow side of each product, and the targets' part is subtracted at the end, where it was not before.
    """

    def __init__(
        self, hidden: Tensor, table: Tensor, bias: Tensor | None, words: int | None = None, *, of_table: bool = True
    ) -> None:
        """`words`: how many rows of the table count, where more are behind them; `of_table`: it learns."""
        self.hidden, self.table, self.words = hidden, table, words
        self.to_hidden = torch.empty_like(hidden)
        empty = torch.zeros(table.shape if not len(hidden) else (0,), device=table.device)
        self.to_table: Tensor | None = empty if of_table else None
        self.to_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        self.losses: list[Tensor] = []

    def add(self, rows: slice, shares: Tensor, factor: Tensor, losses: Tensor | None = None) -> None:
        """One chunk: `shares` are exp(scores), `factor` is weight / total.

        `losses`, of the rows: where they are below CONFIDENT the targets' part is subtracted already.
        """
        self.losses += [] if losses is None else [losses]
        if self.to_bias is not None and shares.dtype == torch.float32:
            self.to_bias.addmv_(shares.T, factor)
        elif self.to_bias is not None:
            self.to_bias += shares.T @ factor.to(shares.dtype)
        shares, factor = shares.to(self.hidden.dtype), factor[:, None]  # in fp32: it would be off for a whole row
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
        """The targets' part subtracted; hidden states get their gradients from the words of all ranks."""
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
            self.to_hidden = split.agree(self.to_hidden)
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
    """Take each row's highest score off, in place, and return it; where no exp can run over, as nearly always, 0."""
    top = scores.amax(1)
    wide = (
        product != torch.float16
    )  # the products of the gradients take the exps in this precision, and fp16 ends at e^11
    if wide and scores.device.type == "cpu" and float(top.max()) < SAFE and float(top.min()) > -SAFE:
        return torch.zeros_like(top)  # a pass over all scores saved; elsewhere the look itself would cost more
    scores.sub_(top[:, None])
    return top


def _most(device: torch.device) -> int:
    """Scores that are made at a time where something is made of them."""
    return CHUNK_SCORES if device.type in BY_HAND else DEVICE_SCORES


def _chunks(rows: int, vocabulary: int, most: int) -> list[slice]:
    """Chunks of about equal size."""
    count = max(-(-rows * vocabulary // most), 1)
    size = max(-(-rows // count), 1)
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]
