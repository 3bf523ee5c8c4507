"""Hybrid: one model with one head learns causal and masked prediction, each on a share of the rows.

causal row    one two three four  ->  two three four five         a token attends to those before it
masked row    one [MASK] three four  ->  at `one`: two            all tokens attend to each other

A token is always predicted from the state of the position before it (GPT-BERT, Charpentier and Samuel 2024). Every row
has the same weight in the loss, however many of its tokens are predicted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.rows import StreamRows
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn import masking, schedules
from ordsmed.learn.objective import Network, OneTerm, counted, end_token
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.schedules import Ramp
from ordsmed.learn.usage import MASKED, PROMPT, Usage, block, in_python, loaded, pipeline
from ordsmed.nn.loss import token_hits, token_loss
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

DIRECTION = 11  # a use of `chance`; learn/masking.py has the lower numbers

RIGHT = {
    "masked_right": "predicts masked words (or pieces of words)",
    "causal_right": "predicts the next word (or piece of a word)",
}


@dataclass(frozen=True)
class Hybrid(Choice):
    """Masked and causal prediction in one model."""

    VERBS: ClassVar[tuple[str, ...]] = ("generate", "fill")
    CHANGES: ClassVar[tuple[str, ...]] = ("masked", "mask_prob", "keep", "swap")

    masked: float | Ramp = 0.5
    """share of rows that are read with masks; the others are read causally"""
    mask_prob: float | Ramp = 0.15
    """share of a masked row's tokens that are masked; elsewhere mlm_probability"""
    keep: float = 0.1
    """of these tokens: share that is kept unchanged"""
    swap: float = 0.1
    """of these tokens: share that is replaced by a random token"""

    def __post_init__(self) -> None:
        low, high = schedules.ends(self.mask_prob)
        if not 0 < low <= high < 1:
            raise ValueError(f"mask_prob: found {self.mask_prob}; wanted shares above 0 and below 1")
        low, high = schedules.ends(self.masked)
        if not 0 <= low <= high <= 1:
            raise ValueError(f"masked: found {self.masked}; wanted shares, 0 to 1")
        if min(self.keep, self.swap) < 0 or self.keep + self.swap > 1:
            raise ValueError(f"keep: found {self.keep} with swap {self.swap}; wanted shares that sum to at most 1")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        end_token(tokenizer, by="hybrid")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> HybridRows:
        return HybridRows(self, stores, weights, tokenizer, phase, *key, stretch=stretch)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> BothWays:
        if not model.capabilities.both:
            problem = "hybrid with a model that reads in one direction only"
            raise RecipeError("objective.kind", problem, 'kind = "gpt2" or "modern" in [model]')
        if tokenizer.mask is None:
            raise RecipeError("tokenizer", "has no mask token", "one with [MASK] or <mask>, as hybrid needs")
        return BothWays(self, model, tokenizer.vocabulary)


class HybridRows(StreamRows):
    def __init__(
        self,
        settings: Hybrid,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch,
    ) -> None:
        end = end_token(tokenizer, by="hybrid")
        super().__init__(stores, weights, phase.length, end, *key, pack=phase.pack)
        self.settings, self.stretch, self.mask = settings, stretch, tokenizer.mask or 0
        self.words = np.asarray([w for w in range(tokenizer.vocabulary) if w not in tokenizer.special])
        self.key = chance.key("hybrid", *key)
        self.slots = masking.slots(schedules.ends(settings.mask_prob)[1], phase.length)

    def batch(self, numbers: Ints) -> Batch:
        rows, options, progress = self.assembled(numbers), self.settings, self.stretch.progress(numbers)
        ratio = schedules.at(options.masked, progress)
        if self.stretch.validating:  # half of the rows masked, half causal, unless the ratio is 0 or 1
            ratio[ratio * (1 - ratio) > 0] = 0.5
        masked = chance.unit(self.key, DIRECTION, numbers) < ratio
        # mask only tokens that follow a token of the same document, from which they are predicted
        documents = rows.documents
        inside = np.zeros_like(rows.inner)
        inside[:, 1:-1] = rows.inner[:, 1:-1] & (documents[:, 1:-1] == documents[:, :-2]) & (documents[:, 1:-1] > 0)
        inside &= rows.tokens != self.end
        mask_prob = schedules.at(options.mask_prob, progress)
        amount = np.clip(np.rint(inside.sum(1) * mask_prob), 1, self.slots)
        amount = (np.minimum(amount, inside.sum(1)) * masked).astype(np.int64)
        chosen = masking.choose(inside, amount, self.slots, self.key, numbers)
        tokens, _ = masking.corrupt(
            rows.tokens,
            *chosen,
            self.key,
            numbers,
            mask=self.mask,
            keep=options.keep,
            swap=options.swap,
            words=self.words,
        )
        weights = rows.inner[:, 1:].astype(np.float32)
        weights[masked] = 0
        row, slot = np.nonzero(chosen[1])
        weights[row, chosen[0][row, slot] - 1] = 1
        weights *= weights.shape[1] / np.maximum(weights.sum(1, keepdims=True), 1)
        return batch_of(
            numbers=numbers,
            tokens=tokens[:, :-1].copy(),
            positions=rows.positions[:, :-1].copy(),
            documents=documents[:, :-1].copy(),
            targets=rows.tokens[:, 1:].copy(),
            weights=weights,
            causal=~masked,
        )


class BothWays(OneTerm):
    """A network and its token head, which predicts each token from the state of the position before it."""

    one_way = shifted = True

    def __init__(self, settings: Hybrid, model: ModelSettings, vocabulary: int) -> None:
        super().__init__("hybrid", model, vocabulary)
        self.settings = settings

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.causal is not None
        hidden = self._hidden(batch)
        sums = {"hybrid": token_loss(*self._counted(batch, batch.weights, hidden))}
        for name, rows in (("masked", ~batch.causal), ("causal", batch.causal)):
            weights = (batch.weights > 0).float() * rows[:, None]
            inputs = self._counted(batch, weights, hidden)
            sums |= {name: token_loss(*inputs), f"{name}_count": weights.sum(), f"{name}_right": token_hits(*inputs)}
        return sums

    def flops(self, rows: int, length: int) -> float:
        """Return the FLOPs with the mean shares over the run; in masked rows only the masked tokens are scored."""
        masked, mask_prob = (
            sum(schedules.ends(value)) / 2 for value in (self.settings.masked, self.settings.mask_prob)
        )
        scored = length * (1 - masked + masked * mask_prob) * self.model_settings.head_flops(self.vocabulary)
        return 3.0 * rows * (length * self.model_settings.flops(length) + scored)

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        does = "continues texts, reading them from left to right, and fills masked tokens, reading both sides"
        causal = self.model_settings.capabilities.causal
        call = pipeline("text-generation", name if causal else f"{name}/causal")
        options = "It has learned to continue texts and to fill masked tokens. "
        options += in_python(name, call + f'print(ask("{PROMPT}", max_new_tokens=20))\n') + "\n\n"
        if causal:
            options += "No class of transformers fills its masks; `ordsmed fill` and `ordsmed embed` do."
            return Usage("text-generation", does, options)
        inner = (
            f"# {name}/causal\n\nThe weights of the folder above, for a causal class: a token attends to those before\n"
            "it, and the scores at a position are for the next token. The folder above fills masked tokens."
        )
        return Usage("text-generation", does, options + _filling_code(name, tokenizer), {"causal": inner})

    def exported(self) -> dict[str, Network]:
        """Return the networks; a bidirectional one is exported as a causal one too."""
        networks = self.networks()
        if not self.model_settings.capabilities.causal:
            networks["causal"] = replace(networks[""], settings=replace(self.model_settings, causal=True))
        return networks

    def _hidden(self, batch: Batch) -> Tensor:
        hidden: Tensor = self.model(
            batch.tokens, batch.positions, batch.texts(self.model), batch.types, causal=batch.causal
        )
        return hidden

    def _loss_inputs(self, batch: Batch) -> tuple[Any, ...]:
        return self._counted(batch, batch.weights, self._hidden(batch))

    def _counted(self, batch: Batch, weights: Tensor, hidden: Tensor) -> tuple[Any, ...]:
        at = batch.counting if weights is batch.weights else None
        return counted(self.head, hidden, batch.targets, weights, self.vocabulary, at=at)


def _filling_code(name: str, tokenizer: Tokenizer) -> str:
    end = tokenizer.piece(tokenizer.end if tokenizer.end is not None else tokenizer.stop or 0)
    mask = tokenizer.piece(tokenizer.mask or 0)
    text = json.dumps(end + MASKED.format(mask=mask) + end, ensure_ascii=False)
    code = f"""import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

{loaded("AutoModelForMaskedLM", name, ".eval()")}\
inputs = tokenizer({text}, add_special_tokens=False, return_tensors="pt")
mask = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]
with torch.no_grad():
    scores = model(**inputs).logits[0, mask - 1]  # at the position BEFORE the mask
print(tokenizer.decode(scores.argmax()))
"""
    return (
        "The folder `causal` holds the same weights for a causal class (`ModernBertDecoderForCausalLM`).\n"
        "**This folder's class predicts a masked token at the position before it**: the scores at a position are for\n"
        'the next token, so `pipeline("fill-mask")`, which reads the scores at the mask, gives wrong results. Put a\n'
        f"`{end}` before and after each text.\n\n{block(code)}"
    )
