"""Encode texts as one vector per token (late interaction), for indexes and probes.

texts -> token_features -> batches of similar lengths -> TokenRows, scored with a question by MaxSim
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.keys import value_key
from ordsmed.data.features import Features
from ordsmed.data.pieces import Ints
from ordsmed.data.windows import run
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.embedding.tokens import token_features
from ordsmed.learn.task import LateInteraction, TokenVectors, packing, reader
from ordsmed.use.text_encoder import ROWS, Floats, check_readable
from ordsmed.weights import weights
from ordsmed.weights.trained_model import Trained


@dataclass(frozen=True)
class TokenEncoder:
    """A late-interaction model, and the prompts to put before texts."""

    trained: Trained
    prompts: Mapping[str, str] = field(default_factory=dict)  # by group; these replace the learned ones
    batch: int = 64

    way = "as trained"

    @property
    def task(self) -> LateInteraction:
        assert isinstance(self.trained.objective, LateInteraction)
        return self.trained.objective

    @property
    def width(self) -> int:
        return self.task.tokens.width

    def starts(self, texts: Sequence[str], group: str) -> Ints:
        """Return where the rows of each text begin, one row per token."""
        return self._features(texts, group).starts

    def opened(self, rows: Floats, starts: Ints) -> TokenRows:
        return TokenRows(rows, starts)

    def vectors(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[Floats]:
        """Yield the token vectors of the texts in order, a block at a time, with zeros for ignored tokens."""
        remaining = iter(texts)
        while block := [*islice(remaining, rows)]:
            yield self._read(self._features(block, group))

    @property
    def as_learned(self) -> TokenVectors:
        return self.task.tokens

    def token_rows(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[TokenRows]:
        """Yield the token vectors of the texts in order, a block at a time, without ignored tokens."""
        remaining = iter(texts)
        while block := [*islice(remaining, rows)]:
            features = self._features(block, group)
            vectors = self._read(features)
            counted = vectors.any(-1)
            yield TokenRows(vectors[counted], np.concatenate([[0], np.cumsum(counted)])[features.starts])

    def questions(self, texts: Sequence[str]) -> TokenRows:
        """Return the token vectors of questions, or raise an error if one has no readable token."""
        check_readable(self.trained, texts)
        [rows] = self.token_rows(texts, "query", max(len(texts), 1))
        return rows

    def key(self) -> str:
        """Return 16 hexadecimal digits that are equal for models that make the same vectors."""
        network = weights.digest(self.trained.objective.networks()[""].tensors())
        options = settings.plain(self.as_learned)
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, options], 16)

    def _features(self, texts: Sequence[str], group: str) -> Features:
        learned, trained = self.task.tokens, self.trained
        options = replace(learned, prompts={**learned.prompts, **self.prompts})
        return token_features([*texts], group, reader(trained.tokenizer, trained.settings), options)[0]

    def _read(self, features: Features) -> Floats:
        trained, sizes = self.trained, features.sizes
        rows: NDArray[np.float32] = np.zeros((len(features.ids), self.width), np.float32)
        options, order = packing(trained.tokenizer, trained.settings), np.argsort(-sizes, kind="stable")
        with torch.inference_mode(), trained.within():
            for begin in range(0, len(order), self.batch):
                chosen = order[begin : begin + self.batch]
                batch = options.batch(features, chosen, chosen).to(trained.device)
                vectors = self.task.token_vectors(batch).float().cpu().numpy()
                inside = np.arange(vectors.shape[1]) < sizes[chosen][:, None]
                rows[np.repeat(features.starts[chosen], sizes[chosen]) + run(sizes[chosen])] = vectors[inside]
        return rows


def token_encoder(
    trained: Trained, pool: str, similarity: str = "", prompts: Mapping[str, str] | None = None, batch: int = 64
) -> TokenEncoder:
    """Return the encoder, or raise an error if a pool or similarity is named, which token vectors do not have."""
    for name, value in (("pool", pool), ("similarity", similarity)):
        if value:
            problem = f"found {value}, but {trained.folder} makes a vector per token, compared by MaxSim"
            raise RecipeError(name, problem, "neither pool nor similarity", "leave it out")
    return TokenEncoder(trained, prompts or {}, batch)
