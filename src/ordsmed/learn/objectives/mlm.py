"""Masked language modeling: predict masked tokens from both sides; a row gets new masks each time it is read.

[CLS] the cat sat [SEP]  ->  [CLS] the [MASK] sat [SEP]  ->  cat
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice, kind_of
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.rows import Assembled, PackedRows, see
from ordsmed.data.sentences import LineRows
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn import masking
from ordsmed.learn.objective import CausalRows, CorruptedRows, OneTerm, counted, end_token, frame_of, masked, need
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.schedules import Ramp, at, ends
from ordsmed.learn.teacher import Teacher
from ordsmed.nn.model import ModelSettings
from ordsmed.text.tokenizer import Tokenizer

RIGHT = {"mlm_right": "predicts masked words (or pieces of words)"}


@dataclass(frozen=True)
class Mlm(Choice):
    """Masked language modeling with dynamic masks."""

    VERBS: ClassVar[tuple[str, ...]] = ("fill",)
    CHANGES: ClassVar[tuple[str, ...]] = (
        "mask_prob",
        "keep",
        "swap",
        "swap_from",
        "unit",
        "over",
        "rounding",
        "signs",
        "cut",
        "causal",
    )
    mask_prob: float | Ramp = 0.15
    """share of a row's tokens that are predicted; `{ start = 0.3, end = 0.15 }` changes linearly over the run;
    elsewhere mlm_probability, masked_lm_prob"""
    keep: float = 0.1
    """of these tokens: share that is kept unchanged"""
    swap: float = 0.1
    """of these tokens: share that is replaced by a random token; the rest becomes [MASK]"""
    swap_from: Literal["text", "all"] = "text"
    """draw random tokens from the vocabulary without special tokens (RoBERTa), or from all of it (BERT)"""
    unit: Literal["token", "word", "span"] = "token"
    """mask single tokens, all tokens of a word, or spans of up to ten words, each replaced as a whole (SpanBERT)"""
    over: Literal["text", "row"] = "text"
    """whether the share is of the tokens of text, or of all tokens of the row (BERT, RoBERTa)"""
    rounding: Literal["even", "chance"] = "even"
    """rounding of the number of masks: to even, at least one (BERT); or up with the probability of the fraction
    (RoBERTa)"""
    signs: bool = False
    """mask start and stop tokens too (RoBERTa)"""
    cut: Literal["anywhere", "sentence", "full_sentences", "doc_sentences", "one_sentence"] = "anywhere"
    """rows end anywhere and are full, or end with a sentence; the last three are RoBERTa's, with a separator after each
    sentence or document; they do not use `pack`"""

    teacher: Teacher | None = None
    """distillation: a model whose scores are learned too: { run = "work/pretrain/large", share = 0.5 }"""

    causal: bool = False
    """train a phase, not the last one, by causal language modeling without masks (`modern` and `gpt2`); its validation
    uses masks"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("teacher", "causal")

    def __post_init__(self) -> None:
        if self.causal and self.teacher:
            raise ValueError("causal: found true with a teacher, which scores masked tokens; wanted one of the two")
        low, high = ends(self.mask_prob)
        if not (low > 0 and high < 1):
            shares = f"{low} to {high}" if isinstance(self.mask_prob, Ramp) else f"{low}"
            raise ValueError(f"mask_prob: found {shares}; wanted a share above 0 and below 1")
        if min(self.keep, self.swap) < 0 or self.keep + self.swap > 1:
            raise ValueError(f"keep: found {self.keep} with swap {self.swap}; wanted shares that sum to at most 1")

    @property
    def undivided(self) -> str:
        """Return why tensor parallelism is impossible; "" if it is possible."""
        return Teacher.UNDIVIDED if self.teacher else ""

    @property
    def unfinished(self) -> str:
        """Return the name of a setting with which the last phase is refused; "" if there is none."""
        return "causal" if self.causal else ""

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        need(tokenizer, "start", "stop", "mask", "pad", by="mlm")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> MaskedRows | CausalRows:
        if not self.causal or stretch.validating:
            return MaskedRows(self, stores, weights, tokenizer, phase, *key, stretch=stretch)
        return CausalRows(stores, weights, end_token(tokenizer, by="mlm"), phase, *key, one_way=True)

    def build(self, model: ModelSettings, tokenizer: Tokenizer) -> MaskedTokens:
        if model.capabilities.causal:
            raise RecipeError("objective.kind", "mlm with a causal model", "", "use clm")
        if self.causal and not model.capabilities.both:
            problem = f"found true with {kind_of(model)}, which reads in one direction only"
            raise RecipeError("objective.causal", problem, 'kind = "modern" in [model]')
        return MaskedTokens(self, model, tokenizer.vocabulary)


class MaskedRows(CorruptedRows):
    def __init__(
        self,
        settings: Mlm,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> None:
        settings.check_tokenizer(tokenizer)
        frame = frame_of(phase, tokenizer)
        if settings.cut in ("full_sentences", "doc_sentences", "one_sentence"):
            options = {"cross": settings.cut == "full_sentences", "alone": settings.cut == "one_sentence"}
            self.plain = LineRows(stores, weights, frame, *key, **options)
        else:
            options = {"pack": phase.pack, "sentences": settings.cut == "sentence"}
            self.plain = PackedRows.of(stores, weights, frame, *key, **options)
        self.settings, self.tokenizer, self.stretch = settings, tokenizer, stretch
        special = tokenizer.special if settings.swap_from == "text" else ()
        self.words = np.asarray([w for w in range(tokenizer.vocabulary) if w not in special])
        self.key = chance.key("mlm", *key)
        self.slots = masking.slots(ends(settings.mask_prob)[1], phase.length)

    def batch(self, numbers: Ints) -> Batch:
        rows, options = self.plain.assembled(numbers), self.settings
        positions, weights, heads = self._chosen(rows, numbers)
        tokens, targets = masking.corrupt(
            rows.tokens,
            positions,
            weights,
            self.key,
            numbers,
            mask=self.tokenizer.mask or 0,
            keep=options.keep,
            swap=options.swap,
            words=self.words,
            heads=heads,
        )
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=rows.positions,
            documents=see(rows.documents),
            predicted_positions=positions,
            targets=targets,
            weights=weights,
        )

    def _chosen(self, rows: Assembled, numbers: Ints) -> tuple[Ints, NDArray[np.float32], Ints | None]:
        """Return the predicted positions, their weights, and `heads` of `masking.corrupt`."""
        options, drawn = self.settings, (self.slots, self.key, numbers)
        real = rows.documents > 0 if options.signs or options.over == "row" else rows.inner
        allowed = real if options.signs else rows.inner
        share, of = at(options.mask_prob, self.stretch.progress(numbers)), real if options.over == "row" else rows.inner
        chances = masking.round_by_chance(self.key, numbers) if options.rounding == "chance" else None
        amount = masking.amounts(allowed, share, self.slots, of=of, chances=chances)
        if options.unit == "token":
            return *masking.choose(allowed, amount, *drawn), None
        continues = self.tokenizer.continues(rows.tokens)
        if options.signs:
            continues &= np.roll(rows.inner, 1, axis=1)
        if options.unit == "word":
            return *masking.choose_words(allowed, continues, amount, *drawn), None
        return masking.choose_spans(allowed, rows.inner, continues, amount, *drawn)


class MaskedTokens(OneTerm):
    """A network and its token head, which scores the predicted positions, or all positions in a causal phase."""

    def __init__(self, settings: Mlm, model: ModelSettings, vocabulary: int) -> None:
        super().__init__("mlm", model, vocabulary)
        self.settings, self.teacher, self.one_way = settings, settings.teacher, settings.causal

    def scored(self, length: int) -> int:
        return length if self.settings.causal else masking.slots(ends(self.settings.mask_prob)[1], length)

    def flops(self, rows: int, length: int) -> float:
        body = length * self.model_settings.flops(length)
        head = self.scored(length) * self.model_settings.head_flops(self.vocabulary)
        return 3.0 * rows * (body + head) + self.teaching_flops(rows, length)

    def _loss_inputs(self, batch: Batch) -> tuple[Any, ...]:
        seen = (batch.tokens, batch.positions, batch.texts(self.model), batch.types)
        if batch.causal is None:
            return masked(self.head, self.model(*seen), batch, self.vocabulary)
        hidden = self.model(*seen, causal=batch.causal)
        return counted(self.head, hidden, batch.targets, batch.weights, self.vocabulary, at=batch.counting)
