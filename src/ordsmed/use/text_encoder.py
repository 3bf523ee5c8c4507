"""TextEncoder: an opened model that makes vectors of texts, by the code of `ordsmed embed --of sentences`.

texts -> Embedder -> vectors, a block at a time, of length 1 where they are compared by their cosine

An index and a probe of vectors read by it; a text is of a group, query or passage, or of none.
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
from ordsmed.weights.trained import Trained

Floats = NDArray[np.float32]
ROWS = 256  # texts of a block


@dataclass(frozen=True)
class TextEncoder:
    """A model, and how it makes the vector of a text."""

    trained: Trained
    pool: str = ""  # empty: as it learned vectors of texts, else the mean of tokens
    similarity: str = ""  # cosine | dot; empty: as it learned, else cosine
    prompts: Mapping[str, str] = field(default_factory=dict)  # by group, in the place of those that it learned
    batch: int = 64

    def __post_init__(self) -> None:
        trained = self.trained
        if isinstance(trained.objective, Task) and getattr(trained.learned, "pairs", False):
            problem = "scores two texts together: one text has no vector"
            if isinstance(trained.objective, LateInteraction):
                problem = "gives each token a vector (late interaction), and texts none"
            raise RecipeError(trained.folder, problem, "a model that embeds", "it can be the one of `search --rerank`")

    @property
    def learned(self) -> TextVectors | None:
        """How it was trained to make vectors of texts, if it was."""
        objective = self.trained.objective
        return objective.vectors if isinstance(objective, Embedding) else None

    @property
    def as_learned(self) -> TextVectors | None:
        """The same, where no other pool is named."""
        return None if self.pool else self.learned

    @property
    def way(self) -> str:
        """How a text becomes a vector, in a word."""
        return self.pool or ("as trained" if self.learned else "mean")

    @property
    def unit(self) -> bool:
        """Are vectors compared by their cosine?"""
        return (self.similarity or (self.learned.similarity if self.learned else "cosine")) == "cosine"

    def form(self, group: str = "") -> Form:
        """For texts of a group. Of an ELMo it is the mean of all layers, of others the last one."""
        layers = "mean" if self.trained.settings.capabilities.state else "top"
        prompt = group if self.as_learned and group not in self.prompts else ""
        return Form(of="sentences", layers=layers, pool=self.pool, batch=self.batch, prompt=prompt)

    def _before(self, group: str) -> str:
        """What is written before texts of a group here: another pool than the trained one knows no prompts."""
        learned = self.learned.prompts.get(group, "") if self.learned and self.pool else ""
        return self.prompts.get(group, learned)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return Embedder.of(self.trained, self.form()).reader.width

    def starts(self, texts: Sequence[str], group: str) -> Ints:
        """Where the rows of each text begin: it has one."""
        return np.arange(len(texts) + 1)

    def opened(self, rows: Floats, starts: Ints) -> Floats:
        """Rows that were read."""
        return rows

    def vectors(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[Floats]:
        """In their order, some rows at a time, which are read by themselves: who resumes behind them reads the same."""
        rest, before = iter(texts), self._before(group)
        with torch.inference_mode(), self.trained.within():
            embedder = Embedder.of(self.trained, self.form(group))
            while block := [f"{before}{text}" for text in islice(rest, rows)]:
                yield self.finished(np.stack([finish() for _, finish in embedder.entries(block)]))

    def finished(self, vectors: NDArray[np.floating]) -> Floats:
        """In 32 bits; of length 1, where their cosine counts."""
        return units(vectors) if self.unit else vectors.astype(np.float32)

    def questions(self, texts: Sequence[str]) -> Tensor:
        """Vectors of questions [Q, D]; a question that holds nothing the model reads is refused."""
        check_readable(self.trained, texts)
        return torch.from_numpy(np.concatenate([*self.vectors(texts, "query")]))

    def key(self) -> str:
        """16 hexadecimal digits of all that the model has a part in: equal where it gives the same vectors."""
        network = weights.digest(own_tensors(self.trained.objective.model))
        how = settings.plain(self.as_learned) if self.as_learned else self._pool_in_key()
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, how], 16)

    def _pool_in_key(self) -> str:
        """Return the name of the pool in keys: `mean` was once the mean of words, and indexes hold its key."""
        pool = self.pool or "mean"
        if self.trained.settings.capabilities.state:
            return "mean"
        return {"mean": "tokens", "words": "mean"}.get(pool, pool)


def check_readable(trained: Trained, questions: Sequence[str]) -> None:
    """Refuse questions that hold nothing that the model reads."""
    if blank := blank_texts(trained, questions):
        place = f"question {blank[0] + 1}" if len(questions) > 1 else "question"
        raise RecipeError(place, "holds nothing that the model reads", "words to search for")


def units(vectors: NDArray[np.floating]) -> Floats:
    """Of length 1; a vector of zeros, which has no direction, stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
