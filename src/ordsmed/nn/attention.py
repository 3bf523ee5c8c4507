"""Self-attention: one projection for query, key and value, and the kernel that fits the device.

B batch, T tokens, D width, H heads, d = D / H. The fused rows stand head by head, [H, 3, d]: a split of the rows is a
split of whole heads. `visible` says which tokens see each other; padding sees padding, so that no row is empty.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.dropout import Dropout


class Kept:
    """The keys and values that a layer has seen: what lets a causal network go on without reading anew."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, with these behind; [B, H, T, d]."""
        if self.key is not None and self.value is not None:
            key, value = torch.cat([self.key, key], 2), torch.cat([self.value, value], 2)
        self.key, self.value = key, value
        return key, value


class Cache:
    """What a causal network has read of some rows: keys and values a layer, and which document each token is of."""

    def __init__(self, layers: int) -> None:
        self.layers = [Kept() for _ in range(layers)]
        self.documents: Tensor | None = None
        self.length = 0

    def visible(self, new: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        """What `new` tokens behind those that were read may see of all; [1 or B, 1, new, all]."""
        if self.length and (documents is None) != (self.documents is None):
            raise ValueError("documents are told of all tokens of a cache, or of none")
        if documents is not None:
            before = [] if self.documents is None else [self.documents]
            self.documents = torch.cat([*before, documents], 1)
        self.length += new
        seen = lower(self.length, device)[-new:]
        if documents is None or self.documents is None:
            return None if new in (1, self.length) else seen[None, None]
        return (documents[:, None, :, None] == self.documents[:, None, None, :]) & seen


class SelfAttention(nn.Module):
    """Scaled dot-product attention over the tokens that may see each other."""

    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool, bias: bool = True) -> None:
        super().__init__()
        self.head, self.causal = width // heads, causal
        self.gather = nn.Linear(width, 3 * width, bias=bias)
        self.mix = nn.Linear(width, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, visible: Tensor | None, *, turn: tuple[Tensor, Tensor] | None = None, kept: Kept | None = None
    ) -> Tensor:
        """`turn`: cosine and sine of every place's angles, [B, T, d]; `kept`: what was read before."""
        fused = self.gather(x).unflatten(-1, (-1, 3, self.head))  # [B, T, H, 3, d]; heads follow the local width
        query, key, value = fused.permute(3, 0, 2, 1, 4)  # each [B, H, T, d]
        if turn is not None:
            query, key = turned(query, *turn), turned(key, *turn)
        if kept is not None:
            key, value = kept.extend(key, value)
        mixed = self._attend(query, key, value, visible)
        return self.mix(mixed.transpose(1, 2).flatten(2))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None) -> Tensor:
        rate = self.dropout.rate if self.training else 0.0
        causal = self.causal and visible is None and query.shape[2] > 1
        if rate == 0 or query.device.type != "cpu":
            return F.scaled_dot_product_attention(query, key, value, visible, dropout_p=rate, is_causal=causal)
        # with dropout torch's CPU kernel falls back to one that draws a number an element: by hand, with bytes
        scores = torch.matmul(query * (1 / math.sqrt(self.head)), key.transpose(-1, -2))
        if causal:
            visible = as_scores(lower(scores.shape[-1], scores.device))
        if visible is not None:
            scores = scores.masked_fill(~visible, -torch.inf) if visible.dtype == torch.bool else scores + visible
        return torch.matmul(self.dropout(scores.softmax(-1)), value)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): each pair of numbers, half a head apart, turned by its place's angle."""
    first, second = x.float().chunk(2, -1)
    spun = torch.cat([-second, first], -1)
    return (x.float() * cosine[:, None] + spun * sine[:, None]).to(x.dtype)


def as_scores(visible: Tensor | None) -> Tensor | None:
    """On a CPU 0 where a token sees another, minus infinity elsewhere: what its kernels want, once for all layers."""
    if visible is None or visible.device.type != "cpu":
        return visible
    return torch.zeros(visible.shape).masked_fill_(~visible, -torch.inf)


def lower(length: int, device: torch.device) -> Tensor:
    """[T, T]: a token sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def visibility(documents: Tensor | None, *, causal: bool, rows: Tensor | None = None) -> Tensor | None:
    """[B, 1, T, T] True where a token may see another; None where the kernel needs no mask.

    `rows`, [B], says which rows see only what stands before, in a network that can do both.
    """
    if documents is None:
        if rows is not None:
            raise ValueError("rows of both kinds need their documents")
        return None
    same = documents[:, None, :, None] == documents[:, None, None, :]
    if rows is not None:
        return same & (lower(documents.shape[1], documents.device) | ~rows[:, None, None, None])
    return same & lower(documents.shape[1], documents.device) if causal else same
