"""Causal language modeling: predict every token from the tokens before it.

<end> one two <end> three  ->  one two <end> three four
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch
from ordsmed.data.store import Store
from ordsmed.learn.objective import CausalRows, LossInputs, OneTerm, end_token
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.teacher import Teacher
from ordsmed.nn.loss import token_loss
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

RIGHT = {"clm_right": "guesses the next word (or piece of a word)"}


@dataclass(frozen=True)
class Clm(Choice):
    """Causal language modeling of documents that are separated by an end token."""

    VERBS: ClassVar[tuple[str, ...]] = ("generate",)
    CHANGES: ClassVar[tuple[str, ...]] = ("separate", "ahead_weight")

    separate: bool = True
    """hide earlier documents of a row from later ones and restart positions at each; false: read a row as one text"""
    teacher: Teacher | None = None
    """distillation: a model whose scores are learned too: { run = "work/pretrain/large", share = 0.5 }"""

    ahead: int = 1
    """tokens that are predicted at each position: above 1, further layers, which exports leave out, predict the tokens
    after the next one (Gloeckle et al. 2024)"""
    ahead_weight: float = 0.3
    """weight of the loss of each further token; 0, as for a last phase: further tokens are not learned"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("teacher", "ahead", "ahead_weight")

    def __post_init__(self) -> None:
        if not 1 <= self.ahead <= 8:
            raise ValueError(f"ahead: found {self.ahead}; wanted 1 to 8 tokens")
        if not 0 <= self.ahead_weight < math.inf:
            raise ValueError(f"ahead_weight: found {self.ahead_weight}; wanted 0 or more")

    @property
    def undivided(self) -> str:
        """Return why tensor parallelism is impossible; "" if it is possible."""
        return Teacher.UNDIVIDED if self.teacher else "heads of further tokens (`ahead`)" if self.ahead > 1 else ""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        end_token(tokenizer, by="clm")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> CausalRows:
        return CausalRows(stores, weights, end_token(tokenizer, by="clm"), phase, *key, separate=self.separate)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> NextTokens:
        if not model.capabilities.causal:
            raise RecipeError("objective.kind", "clm with a bidirectional model", "", "use mlm")
        return NextTokens(self, model, tokenizer.vocabulary)


class NextTokens(OneTerm):
    def __init__(self, settings: Clm, model: ModelSettings, vocabulary: int) -> None:
        super().__init__("clm", model, vocabulary)
        self.settings, self.teacher = settings, settings.teacher
        if settings.ahead > 1:
            self.ahead = nn.ModuleList(Further(self.head_width) for _ in range(settings.ahead - 1))

    @property
    def head_width(self) -> int:
        return int(self.model_settings.width)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss with those of further tokens; a validation has only the loss of the next token."""
        if self.settings.ahead == 1:
            return super().forward(batch)
        hidden = self._hidden(batch)
        total = self._loss(self._inputs_of(hidden, batch), batch)
        for by, further in enumerate(self.ahead, 1):
            if self.settings.ahead_weight:
                total = total + self.settings.ahead_weight * self._loss_ahead(further(hidden), batch, by)
            else:  # gradients of 0, because data parallelism needs a gradient of every weight
                total = total + sum((0.0 * weight.sum() for weight in further.parameters()), torch.zeros(()))
        return {self.term: total}

    def _loss_ahead(self, hidden: Tensor, batch: Batch, by: int) -> Tensor:
        """Return the loss of the tokens `by` positions after the next one, in the same document."""
        states, table, bias, targets, weights, vocabulary = self._inputs_of(hidden, batch)
        within = weights[:, by:]
        if batch.documents is not None:
            within = within * (batch.documents[:, by:] == batch.documents[:, :-by])
        return token_loss(states[:, :-by], table, bias, targets[:, by:], within, vocabulary)

    def flops(self, rows: int, length: int) -> float:
        per_token = self.model_settings.flops(length) + self.model_settings.head_flops(self.vocabulary)
        if self.settings.ahead > 1 and self.settings.ahead_weight:
            further = 4 * self.head_width**2 + self.model_settings.head_flops(self.vocabulary)
            per_token += (self.settings.ahead - 1) * further
        return 3.0 * rows * length * per_token + self.teaching_flops(rows, length)

    def _loss_inputs(self, batch: Batch) -> LossInputs:
        return self._inputs_of(self._hidden(batch), batch)

    def _hidden(self, batch: Batch) -> Tensor:
        hidden: Tensor = self.model(batch.tokens, batch.positions, batch.texts(self.model), batch.types)
        return hidden

    def _inputs_of(self, hidden: Tensor, batch: Batch) -> LossInputs:
        words, bias = self.head.words.weight, self.head.bias
        return self.head.transform(hidden), words, bias, batch.targets, batch.weights, self.vocabulary


class Further(nn.Module):
    """Layers that turn a state into one that predicts a further token with the same head; initially the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.normal_(self.up.weight, std=width**-0.5)
        for start in (self.up.bias, self.down.weight, self.down.bias):
            nn.init.zeros_(start)

    def forward(self, hidden: Tensor) -> Tensor:
        change: Tensor = self.down(nn.functional.gelu(self.up(hidden)))
        return hidden + change
