"""BERT's and ALBERT's objective: masked language modeling over pairs of segments, and a second task over the pair.

[CLS] the cat [MASK] [SEP] it purred [SEP]  ->  sat, and: the second segment follows the first
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base import chance
from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.pairs import PairRows
from ordsmed.data.record_rows import ImportedRows
from ordsmed.data.rows import Assembled, see
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn import masking
from ordsmed.learn.objective import CorruptedRows, LossInputs, Objective, masked, need, predictions
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.score.metrics import share_guessed
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.loss import token_hits, token_loss
from ordsmed.nn.model import PairSettings
from ordsmed.text.tokenizer import Tokenizer

RIGHT = {"mlm_right": "predicts masked words (or pieces of words)"}


@dataclass(frozen=True)
class MlmNsp(Choice):
    """Masked language modeling and classification of pairs of segments; pairs and masks are new each epoch."""

    VERBS: ClassVar[tuple[str, ...]] = ("fill",)
    CHANGES: ClassVar[tuple[str, ...]] = ("mask_prob", "most", "keep", "swap", "unit", "short")
    mask_prob: float = 0.15
    """share of a row's tokens, including special tokens, that are predicted; elsewhere mlm_probability,
    masked_lm_prob"""
    most: int | None = None
    """maximum number of predictions of a row; left out: enough for a full row; elsewhere max_predictions_per_seq"""
    keep: float = 0.1
    """of these tokens: share that is kept unchanged"""
    swap: float = 0.1
    """of these tokens: share that is replaced by any entry of the vocabulary; the rest becomes [MASK]"""
    unit: Literal["token", "word"] = "token"
    """mask single tokens, or all tokens of a word"""
    pairs: Literal["next", "order"] = "next"
    """next: does the second segment follow, or is it from another document (BERT)? order: are they swapped (ALBERT)?"""
    short: float = 0.1
    """share of documents whose pairs get a random length below that of a row"""
    examples: Literal["made", "given", "masked"] = "made"
    """made: pairs from text; given: the pairs of encoded TFRecords with new masks; masked: their pairs and masks"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("examples", "most")

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob: found {self.mask_prob}; wanted a share above 0 and below 1")
        or_more(self, most=1)
        if min(self.keep, self.swap) < 0 or self.keep + self.swap > 1:
            raise ValueError(f"keep: found {self.keep} with swap {self.swap}; wanted shares that sum to at most 1")
        if not 0 <= self.short <= 1:
            raise ValueError(f"short: found {self.short}; wanted a share from 0 to 1")

    def slots(self, length: int) -> int:
        return self.most or masking.slots(self.mask_prob, length)

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        need(tokenizer, "start", "stop", "mask", "pad", by="mlm_nsp")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> MaskedPairRows:
        return MaskedPairRows(self, stores, weights, tokenizer, phase, *key)

    def build(self, model: PairSettings, tokenizer: Tokenizer) -> MaskedPairs:
        if not (model.capabilities.pairs and model.capabilities.types):
            problem = "mlm_nsp with a model without a head for pairs or without token types"
            raise RecipeError("objective.kind", problem, "", 'use mlm, or kind = "bert" in [model]')
        if model.types < 2:
            raise RecipeError("model.types", f"found {model.types}", "2 or more: one per segment")
        return MaskedPairs(self, model, tokenizer.vocabulary)


class MaskedPairRows(CorruptedRows):
    def __init__(
        self,
        settings: MlmNsp,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
    ) -> None:
        settings.check_tokenizer(tokenizer)
        if phase.pack:
            raise RecipeError("phase.pack", "found true", "false: a row has one pair")
        frame = {"length": phase.length, "start": tokenizer.start or 0, "stop": tokenizer.stop or 0}
        frame |= {"pad": tokenizer.pad or 0}
        self.plain: PairRows = (
            PairRows(stores, weights, **frame, style=settings.pairs, short=settings.short, key=key)
            if settings.examples == "made"
            else ImportedRows(stores, weights, **frame, style=settings.pairs, key=key)
        )
        self.settings, self.tokenizer = settings, tokenizer
        self.words = np.arange(tokenizer.vocabulary)
        self.key = chance.key("mlm_nsp", *key)
        self.slots = settings.slots(phase.length)

    def batch(self, numbers: Ints) -> Batch:
        rows, options = self.plain.assembled(numbers), self.settings
        if options.examples == "masked":
            return self._as_given(rows, numbers)
        amount = masking.amounts(rows.inner, options.mask_prob, self.slots, of=rows.documents > 0)
        if options.unit == "word":
            continues = self.tokenizer.continues(rows.tokens)
            chosen = masking.choose_words(rows.inner, continues, amount, self.slots, self.key, numbers)
        else:
            chosen = masking.choose(rows.inner, amount, self.slots, self.key, numbers)
        tokens, targets = masking.corrupt(
            rows.tokens,
            *chosen,
            self.key,
            numbers,
            mask=self.tokenizer.mask or 0,
            keep=options.keep,
            swap=options.swap,
            words=self.words,
        )
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=rows.positions,
            documents=see(rows.documents),
            types=rows.types,
            pairs=rows.pairs,
            predicted_positions=chosen[0],
            targets=targets,
            weights=chosen[1],
        )

    def features(self, numbers: Ints) -> dict[str, NDArray[Any]]:
        """Return these rows with the columns of BERT's create_pretraining_data."""
        batch = self.batch(numbers)
        assert batch.predicted_positions is not None
        assert batch.types is not None
        assert batch.pairs is not None
        used = batch.weights > 0
        real = batch.documents > 0 if batch.documents is not None else batch.tokens >= 0
        table = {
            "input_ids": batch.tokens,
            "input_mask": real.long(),
            "segment_ids": batch.types,
            "masked_lm_positions": batch.predicted_positions * used,
            "masked_lm_ids": batch.targets * used,
            "masked_lm_weights": batch.weights,
            "next_sentence_labels": batch.pairs[:, None],
        }
        return {name: tensor.numpy() for name, tensor in table.items()}

    def _as_given(self, rows: Assembled, numbers: Ints) -> Batch:
        assert isinstance(self.plain, ImportedRows)
        positions, shown = self.plain.masks(numbers)
        row, slot = np.nonzero(positions)
        tokens = rows.tokens.copy()
        tokens[row, positions[row, slot]] = shown[row, slot]
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=rows.positions,
            documents=see(rows.documents),
            types=rows.types,
            pairs=rows.pairs,
            predicted_positions=positions,
            targets=np.take_along_axis(rows.tokens, positions, 1),
            weights=(positions > 0).astype(np.float32),
        )


class MaskedPairs(Objective):
    """A network, its token head, which scores only the predicted positions, and its head for pairs."""

    def __init__(self, settings: MlmNsp, model: PairSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.model_settings, self.vocabulary = settings, model, vocabulary
        self.model = model.build(vocabulary)
        self.head, self.pair = model.token_head(self.model), model.pair_head(self.model)
        self.weights, self.state, self.guesses = {"mlm": 1.0, "pair": 1.0}, {}, "mlm"
        number_layers(self)

    def count(self, batch: Batch) -> dict[str, Tensor]:
        rows = torch.tensor(float(len(batch.tokens)), dtype=torch.float64, device=batch.tokens.device)
        return {"mlm": predictions(batch), "pair": rows}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        inputs, scores = self._loss_inputs(batch)
        return {"mlm": token_loss(*inputs), "pair": _pair_loss(scores, batch)}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        inputs, scores = self._loss_inputs(batch)
        assert batch.pairs is not None
        right = {"mlm_right": token_hits(*inputs), "pair_right": (scores.argmax(-1) == batch.pairs).sum().float()}
        apart = {"apart": (batch.pairs == 1).sum().float(), "apart_count": torch.tensor(float(len(batch.pairs)))}
        return {"mlm": token_loss(*inputs), "pair": _pair_loss(scores, batch), **right, **apart}

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        scores = super().guessing(means, loss, right)
        return scores | (share_guessed("pair", means["apart"]) if "apart" in means else {})

    def flops(self, rows: int, length: int) -> float:
        body = length * self.model_settings.flops(length)
        head = self.settings.slots(length) * self.model_settings.head_flops(self.vocabulary)
        pair = 2.0 * self.model_settings.width * (self.model_settings.width + 2)
        return 3.0 * rows * (body + head + pair)

    def _loss_inputs(self, batch: Batch) -> tuple[LossInputs, Tensor]:
        hidden = self.model(batch.tokens, batch.positions, batch.texts(self.model), batch.types)
        return masked(self.head, hidden, batch, self.vocabulary), self.pair(hidden)


def _pair_loss(scores: Tensor, batch: Batch) -> Tensor:
    assert batch.pairs is not None
    return F.cross_entropy(scores.float(), batch.pairs, reduction="sum")
