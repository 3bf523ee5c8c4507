"""SentenceEncoder: what makes vectors of passages and of questions, and by what it is known again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import value_key
from ordsmed.learn.task import Embedding, Task, TextVectors
from ordsmed.nn.model import own_tensors
from ordsmed.use.embed import Embedder, Form
from ordsmed.use.index.passages import InTokens, Measure, in_words
from ordsmed.weights import weights
from ordsmed.weights.trained import Trained

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SentenceEncoder:
    """An opened model that gives texts vectors, by the code of `ordsmed embed --of sentences`.

    Vectors are of unit length, unless the model learned to compare them by their product.
    """

    trained: Trained
    pool: str = ""  # empty: as it learned vectors of texts, or the mean of words
    batch: int = 64

    def __post_init__(self) -> None:
        trained = self.trained
        if isinstance(trained.objective, Task) and getattr(trained.learned, "pairs", False):
            problem = "scores two texts together: one text has no vector"
            raise RecipeError(trained.folder, problem, "a model that embeds", "it can be the one of `search --rerank`")
        if self.learned and self.learned.sparse:
            problem = "gives sparse vectors, a number for each piece of the vocabulary"
            raise RecipeError(
                trained.folder, problem, "dense ones, which an index holds", "task.head=dense learns them"
            )

    @property
    def learned(self) -> TextVectors | None:
        """How vectors of texts are made, where the model was trained for them and no other pool is named."""
        objective = self.trained.objective
        return objective.vectors if isinstance(objective, Embedding) and not self.pool else None

    def form(self, prompt: str) -> Form:
        """Of an ELMo the mean of all layers, of others the last one; `prompt`: what a text is, to who learned it."""
        layers = "mean" if self.trained.settings.capabilities.state else "top"
        prompt = prompt if self.learned else ""
        return Form(of="sentences", layers=layers, pool=self.pool, batch=self.batch, prompt=prompt)

    @property
    def measure(self) -> Measure:
        """How long texts are to it: an ELMo reads whole words."""
        return in_words if self.trained.settings.capabilities.state else InTokens(self.trained.tokenizer)

    @property
    def longest(self) -> int:
        """Tokens that are read at once, signs left out."""
        longest = int(self.trained.settings.longest())
        return max(1, (min(longest, self.learned.length) if self.learned else longest) - 2)

    def key(self) -> str:
        """16 hexadecimal digits of all that vectors depend on, wherever the model stands: equal where they are."""
        network = weights.digest(own_tensors(self.trained.objective.model))
        how = settings.plain(self.learned) if self.learned else self.pool or "mean"
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, how], 16)

    def vectors(self, texts: Iterable[str], prompt: str = "passage", rows: int = 256) -> Iterator[Floats]:
        """In their order, some rows at a time, which are read by themselves: who resumes behind them reads the same."""
        rest = iter(texts)
        with torch.inference_mode(), self.trained.within():
            embedder = Embedder.of(self.trained, self.form(prompt))
            while block := [*islice(rest, rows)]:
                yield self.finished(np.stack([finish() for _, finish in embedder.entries(block)]))

    def finished(self, vectors: NDArray[np.floating]) -> Floats:
        """Of unit length, unless the model learned otherwise."""
        return vectors.astype(np.float32) if self.learned and not self.learned.normalize else units(vectors)

    def questions(self, texts: Sequence[str]) -> Tensor:
        """Vectors of questions [Q, D]."""
        return torch.from_numpy(np.concatenate([*self.vectors(texts, "query")]))


def units(vectors: NDArray[np.floating]) -> Floats:
    """Of length 1; a vector of zeros, which has no direction, stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
