"""TokenEncoder: an opened model that gives each token of a text a vector (late interaction), texts end to end.

texts -> token_features -> batches of like lengths -> TokenRows, whose MaxSim with a question is its score
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
from ordsmed.weights.trained import Trained


@dataclass(frozen=True)
class TokenEncoder:
    """A model, and what is written before texts."""

    trained: Trained
    prompts: Mapping[str, str] = field(default_factory=dict)  # by group, in the place of those that it learned
    batch: int = 64

    way = "as trained"

    @property
    def task(self) -> LateInteraction:
        assert isinstance(self.trained.objective, LateInteraction)
        return self.trained.objective

    @property
    def width(self) -> int:
        """Numbers of a token's vector."""
        return self.task.tokens.width

    def starts(self, texts: Sequence[str], group: str) -> Ints:
        """Where the rows of each text begin: a row a token."""
        return self._features(texts, group).starts

    def opened(self, rows: Floats, starts: Ints) -> TokenRows:
        """Rows that were read."""
        return TokenRows(rows, starts)

    def vectors(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[Floats]:
        """In their order, those of some texts at a time; zeros for tokens that do not count."""
        rest = iter(texts)
        while block := [*islice(rest, rows)]:
            yield self._read(self._features(block, group))

    @property
    def as_learned(self) -> TokenVectors:
        """How it was trained to make vectors of tokens."""
        return self.task.tokens

    def token_rows(self, texts: Iterable[str], group: str = "passage", rows: int = ROWS) -> Iterator[TokenRows]:
        """The same without those that do not count."""
        rest = iter(texts)
        while block := [*islice(rest, rows)]:
            features = self._features(block, group)
            vectors = self._read(features)
            counted = vectors.any(-1)
            yield TokenRows(vectors[counted], np.concatenate([[0], np.cumsum(counted)])[features.starts])

    def questions(self, texts: Sequence[str]) -> TokenRows:
        """Of questions that are searched with; one that holds nothing the model reads is refused."""
        check_readable(self.trained, texts)
        [rows] = self.token_rows(texts, "query", max(len(texts), 1))
        return rows

    def key(self) -> str:
        """16 hexadecimal digits of all that the model has a part in: equal where it gives the same vectors."""
        network = weights.digest(self.trained.objective.networks()[""].tensors())
        how = settings.plain(self.as_learned)
        return value_key([self.trained.kind, network, self.trained.tokenizer.fingerprint, how], 16)

    def _features(self, texts: Sequence[str], group: str) -> Features:
        learned, trained = self.task.tokens, self.trained
        how = replace(learned, prompts={**learned.prompts, **self.prompts})
        return token_features([*texts], group, reader(trained.tokenizer, trained.settings), how)[0]

    def _read(self, features: Features) -> Floats:
        trained, sizes = self.trained, features.sizes
        rows: NDArray[np.float32] = np.zeros((len(features.ids), self.width), np.float32)
        how, order = packing(trained.tokenizer, trained.settings), np.argsort(-sizes, kind="stable")
        with torch.inference_mode(), trained.within():
            for begin in range(0, len(order), self.batch):
                chosen = order[begin : begin + self.batch]
                batch = how.batch(features, chosen, chosen).to(trained.device)
                vectors = self.task.token_vectors(batch).float().cpu().numpy()
                inside = np.arange(vectors.shape[1]) < sizes[chosen][:, None]
                rows[np.repeat(features.starts[chosen], sizes[chosen]) + run(sizes[chosen])] = vectors[inside]
        return rows


def token_encoder(
    trained: Trained, pool: str, similarity: str = "", prompts: Mapping[str, str] | None = None, batch: int = 64
) -> TokenEncoder:
    """For who may not ask for vectors of texts."""
    for name, value in (("pool", pool), ("similarity", similarity)):
        if value:
            problem = f"found {value}, but {trained.folder} gives each token a vector, compared by MaxSim"
            raise RecipeError(name, problem, "neither pool nor similarity", "leave it out")
    return TokenEncoder(trained, prompts or {}, batch)
