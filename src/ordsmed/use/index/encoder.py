"""SentenceEncoder: what makes vectors of passages and of questions, and by what it is known again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import value_key
from ordsmed.learn.task import Task
from ordsmed.nn.model import own_tensors
from ordsmed.use.embed import Embedder, Form
from ordsmed.use.index.passages import InTokens, Measure, in_words
from ordsmed.weights import weights
from ordsmed.weights.trained import Trained

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SentenceEncoder:
    """An opened model that gives texts vectors of unit length, by the code of `ordsmed embed --of sentences`."""

    trained: Trained
    pool: str = "mean"
    batch: int = 64

    def __post_init__(self) -> None:
        trained = self.trained
        if isinstance(trained.objective, Task) and getattr(trained.learned, "pairs", False):
            problem = "scores two texts together: one text has no vector"
            raise RecipeError(trained.folder, problem, "a model that embeds", "it can be the one of `search --rerank`")

    @property
    def form(self) -> Form:
        """Of an ELMo the mean of all layers, of others the last one."""
        layers = "mean" if self.trained.settings.capabilities.state else "top"
        return Form(of="sentences", layers=layers, pool=self.pool, batch=self.batch)

    @property
    def measure(self) -> Measure:
        """How long texts are to it: an ELMo reads whole words."""
        return in_words if self.trained.settings.capabilities.state else InTokens(self.trained.tokenizer)

    @property
    def longest(self) -> int:
        """Tokens that are read at once, signs left out."""
        return max(1, self.trained.settings.longest() - 2)

    def key(self) -> str:
        """16 hexadecimal digits of all that vectors depend on, wherever the model stands: equal where they are."""
        network = weights.digest(own_tensors(self.trained.objective.model))
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, self.pool], 16)

    def vectors(self, texts: Iterable[str], rows: int = 256) -> Iterator[Floats]:
        """In their order, some rows at a time."""
        with torch.inference_mode(), self.trained.within():
            block: list[NDArray[np.floating]] = []
            for _, finish in Embedder.of(self.trained, self.form).entries(texts):
                block.append(finish())
                if len(block) == rows:
                    yield units(np.stack(block))
                    block = []
        if block:
            yield units(np.stack(block))

    def questions(self, texts: Sequence[str]) -> Tensor:
        """Vectors of questions [Q, D]."""
        return torch.from_numpy(np.concatenate([*self.vectors(texts)]))


def units(vectors: NDArray[np.floating]) -> Floats:
    """Of length 1; a vector of zeros, which has no direction, stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
