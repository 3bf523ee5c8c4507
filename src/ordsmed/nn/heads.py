"""Heads of encoders: predict masked tokens, detect replaced tokens, classify pairs of segments.

D width of the network, E width of its embeddings, V vocabulary.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from ordsmed.nn.activations import Activation
from ordsmed.nn.model import Model, TokenHead, WordTable


class MaskedHead(TokenHead):
    """Predict masked tokens: dense to E, activation, norm, and the word table with one bias per token."""

    def __init__(
        self,
        model: Model,
        width: int,
        embedded: int,
        epsilon: float,
        std: float,
        activation: Activation,
        *,
        tied: bool = True,
    ) -> None:
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
    """Detect replaced tokens: dense, activation, one score per token; above 0: replaced."""

    def __init__(self, width: int, std: float, activation: Activation) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 1)
        self.activation = activation
        self.apply(lambda module: fresh(module, std))

    def forward(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.out(self.activation(self.dense(hidden))).squeeze(-1)
        return scores


class PairHead(nn.Module):
    """Classify the pair of segments in a row: dense, tanh, two scores from the first token's state."""

    def __init__(self, width: int, std: float) -> None:
        super().__init__()
        self.dense, self.out = nn.Linear(width, width), nn.Linear(width, 2)
        self.apply(lambda module: fresh(module, std))

    def forward(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.out(torch.tanh(self.dense(hidden[:, 0])))
        return scores


class WordHead(WordTable):
    """An output table with one bias per word, used in both reading directions."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.table.weight, std=width**-0.5)


def scored_words(model: Model, std: float, *, tied: bool) -> nn.Embedding:
    """Return the network's word table (`tied`), or a new one of the same size."""
    if tied:
        return model.words
    table = nn.Embedding(model.words.num_embeddings, model.words.embedding_dim)
    fresh(table, std)
    return table


def sequential(std: float, **parts: nn.Module) -> nn.Sequential:
    """Return the parts in sequence under their names, with initial weights."""
    return nn.Sequential(OrderedDict(parts)).apply(lambda module: fresh(module, std))


def fresh(module: nn.Module, std: float) -> None:
    """Initialize a linear or embedding layer: weights normal with this `std`, biases 0; norms are unchanged."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
