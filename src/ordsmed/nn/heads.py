"""Heads of encoders: which word stands at a place, whether a token is the real one, how two segments belong together.

D width of the network, E width of its embeddings, V vocabulary.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.model import Model, TokenHead


class MaskedHead(TokenHead):
    """Dense to the embeddings' width, GELU, norm, and the word table with a bias a token."""

    def __init__(self, model: Model, width: int, embedded: int, epsilon: float, spread: float, gelu: str) -> None:
        super().__init__()
        self.words = model.words
        self.dense = nn.Linear(width, embedded)
        self.norm = nn.LayerNorm(embedded, epsilon)
        self.bias = nn.Parameter(torch.zeros(model.words.num_embeddings))
        self.gelu = gelu
        fresh(self.dense, spread)

    def transform(self, hidden: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(hidden), approximate=self.gelu))


class DetectHead(nn.Module):
    """Is a token fake? Dense, GELU, one score: above 0 says yes."""

    def __init__(self, width: int, spread: float, gelu: str) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 1)
        self.gelu = gelu
        self.apply(lambda module: fresh(module, spread))

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [...]."""
        return self.out(F.gelu(self.dense(hidden), approximate=self.gelu)).squeeze(-1)


class PairHead(nn.Module):
    """How the second segment of a row follows the first: the first token's state, dense and tanh, two scores."""

    def __init__(self, width: int, spread: float) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        self.apply(lambda module: fresh(module, spread))

    def forward(self, hidden: Tensor) -> Tensor:
        """[B, T, D] -> [B, 2]."""
        return self.out(torch.tanh(self.dense(hidden[:, 0])))


class WordHead(nn.Module):
    """A table of its own with a bias a word, which both directions of reading are scored with."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.table.weight, std=width**-0.5)


def in_turn(spread: float, **parts: nn.Module) -> nn.Sequential:
    """A task's head: parts one after the other, under their names, with fresh weights."""
    return nn.Sequential(OrderedDict(parts)).apply(lambda module: fresh(module, spread))


def fresh(module: nn.Module, spread: float) -> None:
    """Fresh weights: normal with this spread, biases 0; norms are as torch makes them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=spread)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
