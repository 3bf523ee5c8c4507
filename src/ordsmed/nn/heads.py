"""Heads of encoders: which word stands at a place, whether a token is the real one, how two segments belong together.

D width of the network, E width of its embeddings, V vocabulary.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from ordsmed.nn.activations import Activation
from ordsmed.nn.model import Model, TokenHead, WordTable


class MaskedHead(TokenHead):
    """Dense to the embeddings' width, activation, norm, and the word table with a bias a token."""

    def __init__(
        self, model: Model, width: int, embedded: int, epsilon: float, std: float, activation: Activation, *,
        tied: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.words = scored_words(model, std, tied=tied)
        self.dense = nn.Linear(width, embedded)
        self.norm = nn.LayerNorm(embedded, epsilon)
        self.bias = nn.Parameter(torch.zeros(model.words.num_embeddings))
        self.activation = activation
        fresh(self.dense, std)

    def transform(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.norm(self.activation(self.dense(hidden)))
        return out


class DetectHead(nn.Module):
    """Is a token fake? Dense, activation, one score: above 0 says yes."""

    def __init__(self, width: int, std: float, activation: Activation) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 1)
        self.activation = activation
        self.apply(lambda module: fresh(module, std))

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [...]."""
        scores: Tensor = self.out(self.activation(self.dense(hidden))).squeeze(-1)
        return scores


class PairHead(nn.Module):
    """How the second segment of a row follows the first: the first token's state, dense and tanh, two scores."""

    def __init__(self, width: int, std: float) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        self.apply(lambda module: fresh(module, std))

    def forward(self, hidden: Tensor) -> Tensor:
        """[B, T, D] -> [B, 2]."""
        scores: Tensor = self.out(torch.tanh(self.dense(hidden[:, 0])))
        return scores


class WordHead(WordTable):
    """A table of its own with a bias a word, which both directions of reading are scored with."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.table.weight, std=width**-0.5)


def scored_words(model: Model, std: float, *, tied: bool) -> nn.Embedding:
    """The table that words are scored by: the network's own, or one beside it."""
    if tied:
        return model.words
    apart = nn.Embedding(model.words.num_embeddings, model.words.embedding_dim)
    fresh(apart, std)
    return apart


def in_turn(std: float, **parts: nn.Module) -> nn.Sequential:
    """A task's head: parts one after the other, under their names, with fresh weights."""
    return nn.Sequential(OrderedDict(parts)).apply(lambda module: fresh(module, std))


def fresh(module: nn.Module, std: float) -> None:
    """Fresh weights: normal with this standard deviation, biases 0; norms are as torch makes them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
