"""Scalar mix: one vector a token from all layers of a network, by learnable weights (ELMo, Peters et al. 2018).

layers [L, ..., D] -> gamma * (s_0 h_0 + s_1 h_1 + ...) [..., D]        s = softmax(weights)
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-12  # of the norm


class ScalarMix(nn.Module):
    """The mean of the layers, until it learns better."""

    def __init__(self, layers: int, *, norm: bool = False) -> None:
        super().__init__()
        self.norm = norm
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(1))  # torch splits no weight without a dimension over ranks

    def forward(self, layers: Tensor | Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """L layers, each [..., D] -> [..., D]; `mask`, [...]: the tokens that the norm counts, None: all."""
        shares = self.weights.softmax(0)
        mixed = [
            share * (normed(layer, mask) if self.norm else layer) for share, layer in zip(shares, layers, strict=True)
        ]
        return self.gamma * torch.stack(mixed).sum(0)

    def penalty(self) -> Tensor:
        """What is added to a loss, times a strength, to keep the weights small: the sum of their squares."""
        return self.weights.square().sum()


def normed(layer: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean 0 and variance 1 over all numbers of all tokens that count, not token by token."""
    counted = layer if mask is None else layer[mask.bool()]
    return (layer - counted.mean()) / (counted.var(correction=0) + EPSILON).sqrt()
