"""Sparse vectors of texts: a weight for each piece of the vocabulary, most of them 0 (SPLADE).

    batch -> states [B, T, D] -> masked-LM head [B, T, V] -> largest of each text [E, V] -> log(1 + relu) -> vectors

The head is the one of the pretrained model, which says what else could stand there: so a text is found by words that
it does not have. Vectors are compared by their product, as BM25 compares counts of words.
"""

from __future__ import annotations

from torch import Tensor

from ordsmed.data.batch import Batch
from ordsmed.learn.embedding.encoder import PairEncoder
from ordsmed.learn.embedding.losses import Comparison
from ordsmed.learn.pool import pooled
from ordsmed.learn.task import TextVectors
from ordsmed.learn.usage import Usage
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer


class SparsePairEncoder(PairEncoder):
    """A network whose masked-LM head says which words a text is about."""

    def __init__(self, model: ModelSettings, vocabulary: int, vectors: TextVectors, comparison: Comparison) -> None:
        super().__init__(model, vocabulary, vectors, comparison)
        self.head, self.vector_width = model.token_head(self.model), vocabulary

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Of a text the largest score of each piece: the logarithm grows with it, so is taken of that one alone."""
        largest = pooled(self.head(self.states(batch)), batch, "max").float()
        return {"vectors": largest.relu().log1p()}

    def flops(self, rows: int, length: int) -> float:
        return super().flops(rows, length) + 3.0 * rows * length * self.model_settings.head_flops(self.vector_width)

    def usage(self, name: str, tokenizer: Tokenizer, learned: object) -> Usage:
        does = f"gives a text a weight for each of {self.vector_width:,} pieces of words, most of them 0"
        return self.usage_as(does, ("sparse-encoder", "splade"), "SparseEncoder", name)
