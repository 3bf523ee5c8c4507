"""Masked prediction: some tokens are hidden and guessed from both sides; new masks every time a row is seen.

[CLS] the cat sat [SEP]  ->  [CLS] the [MASK] sat [SEP]  ->  cat
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.rows import Frame, PackedRows, see
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints, windows
from ordsmed.learn import masking
from ordsmed.learn.objective import Objective, predictions
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.loss import token_hits, token_loss
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Settings:
    """Masked language modelling, dynamic."""

    hide: float = 0.15
    """share of a row's tokens that are predicted"""
    keep: float = 0.1
    """of those: shown as they are"""
    swap: float = 0.1
    """of those: shown as any token of the vocabulary; the rest is shown as [MASK]"""
    unit: Literal["token", "word"] = "token"
    """hide single pieces, or all pieces of a word"""
    cut: Literal["anywhere", "sentence"] = "anywhere"
    """rows end anywhere and are full, or end with a sentence"""

    def __post_init__(self) -> None:
        if not 0 < self.hide < 1:
            raise ValueError(f"hide: found {self.hide}; wanted a share above 0 and below 1")
        if min(self.keep, self.swap) < 0 or self.keep + self.swap > 1:
            raise ValueError(f"keep: found {self.keep} with swap {self.swap}; wanted shares that sum to at most 1")

    def rows(
        self, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase, *key: object,
        stretch: Stretch = OVER,
    ) -> MaskedRows:  # fmt: skip
        return MaskedRows(self, stores, weights, tokenizer, phase, *key)

    def build(self, model: Any, tokenizer: Tokenizer) -> MaskedTokens:
        if model.capabilities.causal:
            raise RecipeError("objective.kind", "mlm with a model that sees only what stands before", "", "use clm")
        return MaskedTokens(self, model, tokenizer.vocabulary)


class MaskedRows(PackedRows):
    """Packed rows with masks drawn by their number."""

    def __init__(
        self, settings: Settings, stores: Sequence[Store], weights: Sequence[float], tokenizer: Tokenizer, phase: Phase,
        *key: object,
    ) -> None:  # fmt: skip
        for role in ("start", "stop", "mask", "pad"):
            if getattr(tokenizer, role) is None:
                raise RecipeError("tokenizer", f"has no {role} token", "[CLS] [SEP] [MASK] [PAD], as mlm needs")
        frame = Frame(phase.length, tokenizer.start, tokenizer.stop, tokenizer.pad or 0)
        if phase.length <= frame.joint:
            found = f"found {phase.length}, of which {frame.joint} are special tokens"
            raise RecipeError("phase.length", found, f"{frame.joint + 1} or more")
        super().__init__(
            stores, weights, frame,
            lambda store: windows(
                store.document_starts, store.starts, room=phase.length - frame.joint, joint=frame.joint,
                pack=phase.pack, sentences=settings.cut == "sentence",
            ), *key,
        )  # fmt: skip
        self.settings, self.tokenizer = settings, tokenizer
        self.words = np.asarray([w for w in range(tokenizer.vocabulary) if w not in tokenizer.special])
        self.key = chance.key("mlm", *key)
        self.slots = masking.slots(settings.hide, phase.length)

    def batch(self, numbers: Ints) -> Batch:
        """The rows with these running numbers, masked."""
        rows, how = self.assembled(numbers), self.settings
        amount = masking.amounts(rows.inner, how.hide, self.slots)
        if how.unit == "word":
            continues = self.tokenizer.continues(rows.tokens)
            chosen = masking.choose_words(rows.inner, continues, amount, self.slots, self.key, numbers)
        else:
            chosen = masking.choose(rows.inner, amount, self.slots, self.key, numbers)
        tokens, targets = masking.corrupt(
            rows.tokens, *chosen, self.key, numbers,
            mask=self.tokenizer.mask or 0, keep=how.keep, swap=how.swap, words=self.words,
        )  # fmt: skip
        return batch_of(
            numbers=numbers, tokens=tokens, positions=rows.positions, documents=see(rows.documents),
            places=chosen[0], targets=targets, weights=chosen[1],
        )  # fmt: skip


class MaskedTokens(Objective):
    """A network and its token head, which sees only the places it is asked about."""

    def __init__(self, settings: Settings, model: Any, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.model_settings, self.vocabulary = settings, model, vocabulary
        self.model = model.build(vocabulary)
        self.head = model.token_head(self.model)
        self.weights, self.state, self.guesses = {"mlm": 1.0}, {}, "mlm"
        number_layers(self)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": predictions(batch)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return {"mlm": token_loss(*self._asked(batch))}

    def judge(self, batch: Batch) -> dict[str, Tensor]:
        asked = self._asked(batch)
        return {"mlm": token_loss(*asked), "mlm_right": token_hits(*asked)}

    def flops(self, rows: int, length: int) -> float:
        body = length * self.model_settings.flops(length)
        head = masking.slots(self.settings.hide, length) * self.model_settings.head_flops(self.vocabulary)
        return 3.0 * rows * (body + head)

    def _asked(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, int]:
        hidden = self.model(batch.tokens, batch.positions, batch.documents, batch.types)
        assert batch.places is not None
        rows = batch.tokens.shape[0]
        first = torch.arange(rows, device=batch.places.device)[:, None] * batch.tokens.shape[1]
        asked = self.head.transform(hidden.flatten(0, 1).index_select(0, (batch.places + first).flatten()))
        return asked, self.head.words.weight, self.head.bias, batch.targets, batch.weights, self.vocabulary
