"""Masked diffusion: mask a different share of each row, from one token to all, and predict the masked tokens.

share 1/4   [CLS] the cat [MASK] down [SEP]  ->  sat               weight 4
share 4/4   [CLS] [MASK] [MASK] [MASK] [MASK] [SEP]  ->  the cat sat down               weight 1

With the weight 1 / share (MDLM, Sahoo et al. 2024; LLaDA, Nie et al. 2025) the mean loss per token is an upper bound of
the negative log-likelihood of generating the text token by token, in any order. The number of masks is exactly the
share, not drawn per token: the same bound with less noise (LLaDA's equation 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.rows import PackedRows, see
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn import masking
from ordsmed.learn.objective import CorruptedRows, OneTerm, counted, frame_of, need
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Diffusion(Choice):
    """Masked diffusion: masks of every share, weighted so that the loss bounds the likelihood."""

    VERBS: ClassVar[tuple[str, ...]] = ("generate", "fill")
    CHANGES: ClassVar[tuple[str, ...]] = ("cut",)

    cut: Literal["anywhere", "sentence"] = "anywhere"
    """rows end anywhere and are full, or end with a sentence"""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        need(tokenizer, "start", "stop", "mask", "pad", by="diffusion")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> HiddenRows:
        self.check_tokenizer(tokenizer)
        cut = {"pack": phase.pack, "sentences": self.cut == "sentence"}
        plain = PackedRows.of(stores, weights, frame_of(phase, tokenizer), *key, **cut)
        return HiddenRows(plain, tokenizer.mask or 0, chance.key("diffusion", *key))

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> HiddenTokens:
        if model.capabilities.causal:
            problem = "diffusion with a causal model"
            raise RecipeError("objective.kind", problem, "", "use clm")
        return HiddenTokens("diffusion", model, tokenizer.vocabulary)


@dataclass(frozen=True)
class HiddenRows(CorruptedRows):
    plain: PackedRows
    mask: int
    key: int

    def batch(self, numbers: Ints) -> Batch:
        """Return the rows with these numbers, masked; the weights of a row sum to its number of tokens."""
        rows = self.plain.assembled(numbers)
        words = rows.inner.sum(1)
        amount = np.minimum((shares(self.key, numbers) * words).astype(np.int64) + 1, words)
        positions, used = masking.choose(rows.inner, amount, rows.tokens.shape[1], self.key, numbers)
        row, slot = np.nonzero(used)
        tokens, weights = rows.tokens.copy(), np.zeros(rows.tokens.shape, np.float32)
        tokens[row, positions[row, slot]] = self.mask
        weights[row, positions[row, slot]] = (words / np.maximum(amount, 1))[row]
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=rows.positions,
            documents=see(rows.documents),
            targets=rows.tokens,
            weights=weights,
        )


def shares(key: int, numbers: Ints) -> NDArray[np.float64]:
    """Return the share of masks of each row, in [0, 1), evenly spread over consecutive rows.

    From row to row the share moves by the golden ratio, modulo 1. So every batch, and every rank's part of it, has
    small, middle and large shares. MDLM instead divides [0, 1) into as many strata as a batch has rows.
    """
    hashed = numbers.astype(np.uint64) * np.uint64(chance.GOLDEN) + np.uint64(key)
    return np.asarray((hashed >> np.uint64(11)) * (1.0 / (1 << 53)), np.float64)


class HiddenTokens(OneTerm):
    measures = ("perplexity_bound",)

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Return an upper bound of the perplexity of generating the text token by token."""
        return {"perplexity_bound": math.exp(min(means["diffusion"], 100.0))}

    def flops(self, rows: int, length: int) -> float:
        """Return the FLOPs of a step in which half of all tokens are masked, as on average."""
        head = (length + 1) / 2 * self.model_settings.head_flops(self.vocabulary)
        return 3.0 * rows * (length * self.model_settings.flops(length) + head)

    def _loss_inputs(self, batch: Batch) -> tuple[Any, ...]:
        hidden = self.model(batch.tokens, batch.positions, batch.texts(self.model), batch.types)
        return counted(self.head, hidden, batch.targets, batch.weights, self.vocabulary, at=batch.counting)
