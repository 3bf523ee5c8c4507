"""Causal prediction: every token is guessed from those before it.

<end> one two <end> three  ->  one two <end> three four
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.rows import StreamRows, see
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn.objective import OneTerm
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.teacher import Teacher
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

RIGHT = {"clm_right": "guesses the next word (or piece of a word)"}


@dataclass(frozen=True)
class Clm(Choice):
    """Causal language modeling: documents one after the other, an end sign between them."""

    VERBS: ClassVar[tuple[str, ...]] = ("generate",)
    CHANGES: ClassVar[tuple[str, ...]] = ("separate",)

    separate: bool = True
    """a document does not see the one before it in its row, and positions begin anew; false: one running text"""
    teacher: Teacher | None = None
    """a model whose scores of the next tokens are learned too: { run = "work/pretrain/large", share = 0.5 }"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("teacher",)

    def rows(
        self, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase, *key: object,
        stretch: Stretch = OVER,
    ) -> CausalRows:  # fmt: skip
        return CausalRows(self, stores, weights, tokenizer, phase, *key)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> NextTokens:
        if not model.capabilities.causal:
            raise RecipeError("objective.kind", "clm with a model that sees what it is to guess", "", "use mlm")
        return NextTokens(self, model, tokenizer.vocabulary)


class CausalRows(StreamRows):
    """Rows of running text and the same text one token on."""

    def __init__(
        self, settings: Clm, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase,
        *key: object,
    ) -> None:  # fmt: skip
        end = tokenizer.end if tokenizer.end is not None else tokenizer.stop
        if end is None:
            raise RecipeError("tokenizer", "has no end sign", "<|endoftext|>, </s> or [SEP], as clm needs")
        super().__init__(stores, weights, phase.length, end, *key, pack=phase.pack)
        self.separate = settings.separate

    def batch(self, numbers: Ints) -> Batch:
        rows = self.assembled(numbers)
        weights = rows.inner[:, 1:].astype(np.float32)
        documents, positions = rows.documents[:, :-1].copy(), rows.positions[:, :-1].copy()
        if not self.separate:
            documents = np.minimum(documents, 1)
            positions[:] = np.arange(positions.shape[1])
        return batch_of(
            numbers=numbers, tokens=rows.tokens[:, :-1].copy(), positions=positions, documents=see(documents),
            targets=rows.tokens[:, 1:].copy(), weights=weights,
        )  # fmt: skip


class NextTokens(OneTerm):
    """A network and its token head, asked about every place."""

    def __init__(self, settings: Clm, model: ModelSettings, vocabulary: int) -> None:
        super().__init__("clm", model, vocabulary)
        self.teacher = settings.teacher

    def flops(self, rows: int, length: int) -> float:
        per_token = self.model_settings.flops(length) + self.model_settings.head_flops(self.vocabulary)
        return 3.0 * rows * length * per_token + self.teaching_flops(rows, length)

    def _loss_inputs(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, int]:
        hidden = self.model(batch.tokens, batch.positions, batch.texts(self.model), batch.types)
        words, bias = self.head.words.weight, self.head.bias
        return self.head.transform(hidden), words, bias, batch.targets, batch.weights, self.vocabulary
