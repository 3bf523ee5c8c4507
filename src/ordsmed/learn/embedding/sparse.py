"""Sparse vectors of texts: a weight for each token of the vocabulary, most of them 0 (SPLADE).

    batch -> states [B, T, D] -> masked-LM head [B, T, V] -> largest of each text [E, V] -> log(1 + relu) -> vectors

The head is that of the pretrained model and predicts which other tokens fit a position, so a text can be found by
words that it does not contain. Vectors are compared by their dot product, as BM25 compares counts of words.
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
    def __init__(self, model: ModelSettings, vocabulary: int, vectors: TextVectors, comparison: Comparison) -> None:
        super().__init__(model, vocabulary, vectors, comparison)
        self.head, self.vector_width = model.token_head(self.model), vocabulary

    def scores(self, batch: Batch) -> dict[str, Tensor]:
        """Return log(1 + relu) of the largest score of each vocabulary token.

        The logarithm is monotonic, so it is computed after the maximum.
        """
        largest = pooled(self.head(self.states(batch)), batch, "max").float()
        return {"vectors": largest.relu().log1p()}

    def flops(self, rows: int, length: int) -> float:
        return super().flops(rows, length) + 3.0 * rows * length * self.model_settings.head_flops(self.vector_width)

    def usage(self, name: str, tokenizer: Tokenizer, learned: object) -> Usage:
        does = f"computes a weight of a text for each of {self.vector_width:,} pieces of words, most of them 0"
        return self.usage_as(does, ("sparse-encoder", "splade"), "SparseEncoder", name)
