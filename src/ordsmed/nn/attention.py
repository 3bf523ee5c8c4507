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


class SelfAttention(nn.Module):
    """Scaled dot-product attention over the tokens that may see each other."""

    def __init__(self, width: int, heads: int, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.head, self.causal = width // heads, causal
        self.gather = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        fused = self.gather(x).unflatten(-1, (-1, 3, self.head))  # [B, T, H, 3, d]; heads follow the local width
        query, key, value = fused.permute(3, 0, 2, 1, 4)  # each [B, H, T, d]
        mixed = self._attend(query, key, value, visible)
        return self.mix(mixed.transpose(1, 2).flatten(2))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None) -> Tensor:
        rate = self.dropout.rate if self.training else 0.0
        if rate == 0 or query.device.type != "cpu":
            causal = self.causal and visible is None
            return F.scaled_dot_product_attention(query, key, value, visible, dropout_p=rate, is_causal=causal)
        # with dropout torch's CPU kernel falls back to one that draws a number an element: by hand, with bytes
        scores = torch.matmul(query * (1 / math.sqrt(self.head)), key.transpose(-1, -2))
        if visible is None and self.causal:
            visible = lower(scores.shape[-1], scores.device)
        if visible is not None:
            scores = scores.masked_fill(~visible, -torch.inf)
        return torch.matmul(self.dropout(scores.softmax(-1)), value)


def lower(length: int, device: torch.device) -> Tensor:
    """[T, T]: a token sees itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def visibility(documents: Tensor | None, *, causal: bool) -> Tensor | None:
    """[B, 1, T, T] True where a token may see another; None where the kernel needs no mask."""
    if documents is None:
        return None
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same & lower(documents.shape[1], documents.device) if causal else same
