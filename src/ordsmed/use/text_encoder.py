"""Encode texts as vectors, for indexes and probes, with the code of `ordsmed embed --of sentences`.

    texts -> Embedder -> vectors, a block at a time, of length 1 if they are compared by cosine

The group of a text, query or passage, selects the prompt that is put before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import value_key
from ordsmed.data.pieces import Ints
from ordsmed.learn.task import Embedding, LateInteraction, Task, TextVectors
from ordsmed.nn.model import own_tensors
from ordsmed.use.embed import Embedder, Form
from ordsmed.use.readers import blank_texts
from ordsmed.weights import weights
from ordsmed.weights.trained_model import Trained

Floats = NDArray[np.float32]
ROWS = 256  # texts per block


@dataclass(frozen=True)
class TextEncoder:
    """A model and how it makes the vector of a text."""

    trained: Trained
    pool: str = ""  # empty: the learned pool, or the mean of tokens if none was learned
    similarity: str = ""  # cosine | dot; empty: the learned one, or cosine
    prompts: Mapping[str, str] = field(default_factory=dict)  # by group; these replace the learned ones
    batch: int = 64

    def __post_init__(self) -> None:
        trained = self.trained
        if isinstance(trained.objective, Task) and getattr(trained.learned, "pairs", False):
            problem = "scores two texts together: one text has no vector"
            if isinstance(trained.objective, LateInteraction):
                problem = "makes vectors of tokens (late interaction), not of texts"
            raise RecipeError(trained.folder, problem, "a model that embeds texts", "use it for `search --rerank`")

    @property
    def learned(self) -> TextVectors | None:
        """Return how the model was trained to embed texts, or None if it was not."""
        objective = self.trained.objective
        return objective.vectors if isinstance(objective, Embedding) else None

    @property
    def as_learned(self) -> TextVectors | None:
        """Return how the model was trained to embed texts, or None if a pool is named."""
        return None if self.pool else self.learned

    @property
    def way(self) -> str:
        """Return the name of the pooling, for reports."""
        return self.pool or ("as trained" if self.learned else "mean")

    @property
    def unit(self) -> bool:
        return (self.similarity or (self.learned.similarity if self.learned else "cosine")) == "cosine"

    def form(self, group: str = "") -> Form:
        """Return the form of embeddings of a group: of an ELMo the mean of all layers, else the last layer."""
        layers = "mean" if self.trained.settings.capabilities.state else "top"
        prompt = group if self.as_learned and group not in self.prompts else ""
        return Form(of="sentences", layers=layers, pool=self.pool, batch=self.batch, prompt=prompt)

    def _before(self, group: str) -> str:
        """Return the prompt that is prepended here; with a named pool, the reader does not add prompts."""
        learned = self.learned.prompts.get(group, "") if self.learned and self.pool else ""
        return self.prompts.get(group, learned)

    @property
    def width(self) -> int:
        return Embedder.of(self.trained, self.form()).reader.width

    def starts(self, texts: Sequence[str], group: str) -> Ints:
        """Return where the rows of each text begin; each text has one row."""
        return np.arange(len(texts) + 1)

    def opened(self, rows: Floats, starts: Ints) -> Floats:
        return rows

    def vectors(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[Floats]:
        """Yield the vectors of the texts in order, `rows` texts at a time.

        Each block is computed by itself, so a resumed run gets the same vectors.
        """
        remaining, prompt = iter(texts), self._before(group)
        with torch.inference_mode(), self.trained.within():
            embedder = Embedder.of(self.trained, self.form(group))
            while block := [f"{prompt}{text}" for text in islice(remaining, rows)]:
                yield self.finished(np.stack([finish() for _, finish in embedder.entries(block)]))

    def finished(self, vectors: NDArray[np.floating]) -> Floats:
        """Return the vectors in 32 bits, scaled to length 1 if they are compared by cosine."""
        return units(vectors) if self.unit else vectors.astype(np.float32)

    def questions(self, texts: Sequence[str]) -> Tensor:
        """Return the vectors of questions [Q, D], or raise an error if one has no readable token."""
        check_readable(self.trained, texts)
        return torch.from_numpy(np.concatenate([*self.vectors(texts, "query")]))

    def key(self) -> str:
        """Return 16 hexadecimal digits that are equal for models that make the same vectors."""
        network = weights.digest(own_tensors(self.trained.objective.model))
        options = settings.plain(self.as_learned) if self.as_learned else self._pool_in_key()
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, options], 16)

    def _pool_in_key(self) -> str:
        """Return the pool's name for keys. Old indexes called the mean of words `mean`, so keys still do."""
        pool = self.pool or "mean"
        if self.trained.settings.capabilities.state:
            return "mean"
        return {"mean": "tokens", "words": "mean"}.get(pool, pool)


def check_readable(trained: Trained, questions: Sequence[str]) -> None:
    """Raise an error if a question has no token that the model can read."""
    if blank := blank_texts(trained, questions):
        location = f"question {blank[0] + 1}" if len(questions) > 1 else "question"
        raise RecipeError(location, "has no text that the model can read", "words to search for")


def units(vectors: NDArray[np.floating]) -> Floats:
    """Return the vectors scaled to length 1. Vectors of zeros stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
