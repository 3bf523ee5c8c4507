"""Scalar mix: one vector per token from all layers of a network, by trainable weights (ELMo, Peters et al. 2018).

layers [L, ..., D] -> gamma * (s_0 h_0 + s_1 h_1 + ...) [..., D]        s = softmax(weights)
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-12  # added to the variance


class ScalarMix(nn.Module):
    def __init__(self, layers: int, *, norm: bool = False) -> None:
        super().__init__()
        self.norm = norm
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))  # 1-dimensional, because torch cannot shard a scalar parameter

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix L layers of shape [..., D]. `mask`, [...]: the tokens that `norm` counts; None: all."""
        shares = self.weights.softmax(0)
        mixed = [
            share * (normalized(layer, mask) if self.norm else layer)
            for share, layer in zip(shares, layers, strict=True)
        ]
        return self.gamma * torch.stack(mixed).sum(0)

    def penalty(self) -> Tensor:
        """Return the sum of squared weights, a penalty for the loss that keeps them small."""
        return self.weights.square().sum()


def normalized(layer: Tensor, mask: Tensor | None = None) -> Tensor:
    """Normalize a layer to mean 0 and variance 1, computed over all numbers of all counted tokens."""
    counted = layer if mask is None else layer[mask.bool()]
    return (layer - counted.mean()) / (counted.var(correction=0) + EPSILON).sqrt()
