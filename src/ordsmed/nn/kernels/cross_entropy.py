"""Cross-entropy by one kernel: each row's loss, a word drawn from its softmax, and the softmax in place of the scores.

    scores [n, W], 16 or 32 bits -> losses [n], words [n], and exp(scores - log of their sum + lift) in `scores`

If a loss is below CONFIDENT, 1 is subtracted from the target's share before it is rounded to 16 bits. The difference is
the gradient; for shares near 1, rounding first would destroy it.

A row is read twice and written once, and no other tensor of this width is allocated. The plain version reads and writes
rows in fp32 several times. Draws equal those of learn/sampling.py: first a block by the sums of its shares, then a word
of the block.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.nn.kernels.noise import hashed
from ordsmed.nn.kernels.ops import define
from ordsmed.nn.kernels.trial import Shapes, close

TILE = 4_096  # scores of a row that a program processes at a time
BLOCK = tl.constexpr(128)  # neighboring words that form a block for draws, as in learn/sampling.py
_BLOCKS = tl.constexpr(1 << 32)  # noise counters of blocks start here, as in learn/sampling.py
_LOWEST = tl.constexpr(-3.0e38)  # below every score, but finite, so that subtracting it from itself gives 0
CONFIDENT = tl.constexpr(0.6875)  # as in nn/loss.py: target shares above a half


@triton.jit
def _gumbel(key: Value, number: Value) -> Value:
    """Return Gumbel noise hashed from a key and numbers; near 0 the inner logarithm is a series, for precision."""
    share = (((hashed(key, number) >> 32) & 0xFFFFFFFF).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    share = tl.minimum(share, 0.99999994)
    near = share * (1 + share * (1 / 2 + share * (1 / 3 + share * (1 / 4 + share * (1 / 5 + share / 6)))))
    return -tl.log(tl.where(share < 0.03125, near, -tl.log(1.0 - share)))


@triton.jit
def _rows(
    scores: Value,
    targets: Value,
    keys: Value,
    losses: Value,
    drawn: Value,
    stride: Value,
    lifted: Value,
    words: tl.constexpr,
    width: tl.constexpr,
    SHARES: tl.constexpr,
    DRAWS: tl.constexpr,
    TILES: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    scores += row * stride
    target = tl.load(targets + row)
    right = tl.load(scores + target).to(tl.float32)
    blocks, within = tl.arange(0, TILES), tl.arange(0, BLOCK)
    top, total = tl.full((), _LOWEST, tl.float32), tl.full((), 0.0, tl.float32)
    best, block = tl.full((), float("-inf"), tl.float32), tl.full((), 0, tl.int32)
    if DRAWS:
        key = tl.load(keys + row)
    for begin in range(0, width, TILES * BLOCK):
        column = begin + blocks[:, None] * BLOCK + within[None, :]
        score = tl.load(scores + column, mask=column < width, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(tl.max(score, 1), 0))
        sums = tl.sum(tl.exp(score - higher), 1)
        total = total * tl.exp(top - higher) + tl.sum(sums, 0)
        top = higher
        if DRAWS:
            number = begin // BLOCK + blocks
            level = tl.log(sums) + higher + _gumbel(key, number.to(tl.int64) + _BLOCKS)
            highest = tl.max(level, 0)
            block = tl.where(highest > best, begin // BLOCK + tl.argmax(level, 0), block)
            best = tl.maximum(best, highest)
    if DRAWS:
        word = block * BLOCK + within
        score_of = tl.load(scores + word, mask=word < words, other=float("-inf")).to(tl.float32)
        noisy = tl.where(word < words, score_of + _gumbel(key, word.to(tl.int64)), float("-inf"))
        tl.store(drawn + row, tl.minimum(block * BLOCK + tl.argmax(noisy, 0), words - 1).to(tl.int64))
    loss = tl.log(total) + top - right
    tl.store(losses + row, loss)
    if SHARES:
        tl.debug_barrier()  # all threads have read the scores that are overwritten
        factor = lifted / total
        subtracted = tl.where(loss < CONFIDENT, lifted, 0.0)
        for begin in range(0, width, TILES * BLOCK):
            column = begin + blocks[:, None] * BLOCK + within[None, :]
            score = tl.load(scores + column, mask=column < width, other=float("-inf")).to(tl.float32)
            share = tl.exp(score - top) * factor - tl.where(column == target, subtracted, 0.0)
            tl.store(scores + column, share.to(scores.dtype.element_ty), mask=column < width)


def _launch(
    scores: Tensor, targets: Tensor, keys: Tensor | None, words: int, lift: float, shares: bool
) -> tuple[Tensor, Tensor]:
    losses, drawn = _outputs(scores, targets, keys, words, lift, shares)
    if not scores.numel():
        return losses, drawn
    width = scores.shape[1]
    tiles = min(triton.next_power_of_2(triton.cdiv(width, BLOCK.value)), TILE // BLOCK.value)
    _rows[(len(scores),)](
        scores,
        targets,
        targets if keys is None else keys,
        losses,
        drawn,
        scores.stride(0),
        math.exp(lift),
        words,
        width,
        shares,
        keys is not None,
        tiles,
        num_warps=8,
    )
    return losses, drawn


def _outputs(
    scores: Tensor, targets: Tensor, keys: Tensor | None, words: int, lift: float, shares: bool
) -> tuple[Tensor, Tensor]:
    losses = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    return losses, torch.empty(0 if keys is None else len(scores), dtype=torch.int64, device=scores.device)


_op = define(
    "cross_entropy(Tensor(a!) scores, Tensor targets, Tensor? keys, int words, float lift, bool shares)"
    " -> (Tensor, Tensor)",
    _launch,
    _outputs,
)


def cross_entropy(
    scores: Tensor, targets: Tensor, words: int, *, keys: Tensor | None = None, lift: float = 0.0, shares: bool = True
) -> tuple[Tensor, Tensor]:
    """Return each row's loss and, with `keys`, a word drawn for it; replace its scores by its shares times e^lift.

    1 is subtracted from the shares of confident targets. Scores from column `words` on must be -inf.
    """
    assert scores.stride(1) == 1, "scores of a row must be contiguous"
    keys = None if keys is None else keys.contiguous()
    pair: tuple[Tensor, Tensor] = _op(scores, targets.contiguous(), keys, words, lift, shares)
    return pair


def plain(scores: Tensor, targets: Tensor, lift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Compute the same by torch's kernels, without draws, and return losses and shares."""
    logs = torch.log_softmax(scores.float(), 1)
    losses = -logs.gather(1, targets[:, None]).squeeze(1)
    ones = torch.where(losses < CONFIDENT.value, math.exp(lift), 0.0)
    return losses, logs.add_(lift).exp_().scatter_add_(1, targets[:, None], -ones[:, None]).to(scores.dtype)


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare the kernel with `plain` on a few rows; return the difference in words, or an empty string."""
    noise, lift = torch.Generator().manual_seed(0), 5.0 if shapes.dtype == torch.float16 else 0.0
    for words in shapes.vocabulary:
        width = words if shapes.dtype == torch.float32 else -(-words // 128) * 128
        scores = torch.randn(4, width, generator=noise)
        scores[0, words // 2] = math.log(words) + 1.5  # one target has a share above a half
        scores[:, words:] = -torch.inf
        targets = torch.tensor([words // 2, 0, words - 1, words // 3], device=device)
        scores = scores.to(device, shapes.dtype)
        losses, shares = plain(scores.float(), targets, lift)
        for keys in (None, targets):
            in_place = scores.clone()
            values, drawn = cross_entropy(in_place, targets, words, keys=keys, lift=lift)
            if not (close([values], [losses], torch.float32) and close([in_place], [shares], shapes.dtype)):
                return "other losses or shares than torch's"
            if not bool(((drawn >= 0) & (drawn < words)).all()):
                return "words outside the vocabulary"
    return ""


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        scores, keys = torch.empty(2, 50_304, dtype=dtype, device=device), torch.zeros(2, dtype=torch.int64)
        cross_entropy(scores, keys, 50_257)
        cross_entropy(scores[:, :30_592], keys, 30_522, keys=keys)
