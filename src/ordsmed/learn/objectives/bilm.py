"""ELMo's objective: a forward and a backward language model over words, whose states carry over between windows.

<S> the newts ran      ->  the newts ran </S>          forward
</S> ran newts the     ->  ran newts the <S>           backward
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base import chance
from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch
from ordsmed.data.store import Store
from ordsmed.data.stream_rows import CarriedRows, SpecialWords
from ordsmed.data.windows import Ints
from ordsmed.learn.objective import Network, Objective, need
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.sampling import candidates, log_expected
from ordsmed.learn.usage import Usage, in_python
from ordsmed.nn.characters import symbols
from ordsmed.nn.dropout import Dropout, number_layers
from ordsmed.nn.loss import sampled_loss, token_hits, token_loss
from ordsmed.nn.model import CarryingSettings
from ordsmed.text.tokenizer import Tokenizer

WAYS = ("forward", "backward")

RIGHT = {"forward_right": "predicts the next word"}


@dataclass(frozen=True)
class BiLm(Choice):
    """Prediction of the next word in both directions, from states that carry over from window to window."""

    samples: int = 8192
    """words drawn for the sampled softmax of a training batch; 0: the full softmax"""
    together: bool = True
    """both directions read the same sentences in a step, which is faster because there are fewer different words;
    false: each in a different order, as in the reference implementation"""
    scale: float = 1.0
    """factor of the gradients of the mean loss; in the reference implementation the number of words of a window"""
    head: bool = True
    """have a head with scores over the vocabulary; false: only vectors, for weights that came without a head"""

    def __post_init__(self) -> None:
        or_more(self, samples=0)
        if not 0 < self.scale < float("inf"):
            raise ValueError(f"scale: found {self.scale}; wanted a finite number above 0")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        need(tokenizer, "start", "stop", "unknown", by="bilm")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> BiRows:
        if not self.head:
            raise RecipeError("objective.head", "found false", "true: without scores there is no loss")
        if not phase.pack:
            raise RecipeError("pack", "found false", "true: states carry over between rows, which have no padding")
        self.check_tokenizer(tokenizer)
        assert tokenizer.start is not None
        assert tokenizer.stop is not None
        assert tokenizer.unknown is not None
        special = SpecialWords(tokenizer.start, tokenizer.stop, tokenizer.unknown, tokenizer.vocabulary)
        options = {"length": phase.length, "batch": phase.batch, "together": self.together}
        return BiRows(self, stores, weights, special, *key, whole=stretch.validating, **options)

    def build(self, model: CarryingSettings, tokenizer: Tokenizer) -> BothDirections:
        if not model.capabilities.state:
            raise RecipeError("objective.kind", "bilm with a model without a carried state", "", 'use kind = "elmo"')
        if self.samples > tokenizer.vocabulary // 2:
            problem = f"found {self.samples}, more than half of the {tokenizer.vocabulary:,} words"
            raise RecipeError("objective.samples", problem, "fewer, or 0 for all words, which is as fast")
        return BothDirections(self, model, tokenizer.vocabulary)


class BiRows(CarriedRows):
    """Windows of streams, with the candidates of a sampled softmax, which are the same for all rows of a step."""

    def __init__(self, settings: BiLm, *inputs: Any, whole: bool, **options: Any) -> None:
        super().__init__(*inputs, whole=whole, **options)
        self.samples = 0 if whole else settings.samples
        self.key = chance.key("candidates", *inputs[3:])
        self._last: tuple[int, Tensor, Tensor] | None = None  # the candidates of the last window

    def batch(self, numbers: Ints) -> Batch:
        batch = super().batch(numbers)
        if not self.samples:
            return batch
        words, tries = self.drawn(int(numbers[0]) // self.count)
        return replace(batch, candidates=words, tries=tries)

    def drawn(self, window: int) -> tuple[Tensor, Tensor]:
        if self._last is None or self._last[0] != window:
            words, tries = candidates(chance.key(self.key, window), self.samples, self.special.vocabulary)
            self._last = (window, torch.from_numpy(words), torch.tensor(tries))
        return self._last[1:]


class BothDirections(Objective):
    model: Any
    guesses = "validation"
    measures = ("perplexity", *(f"perplexity_{way}" for way in WAYS))

    def __init__(self, settings: BiLm, model: CarryingSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings, self.model_settings, self.vocabulary = settings, model, vocabulary
        self.elmo = model  # typed: it has more methods than other families
        self.model = model.build(vocabulary)
        if settings.head:
            self.head = model.word_head(vocabulary)
        self.dropout_ahead, self.dropout_back = Dropout(model.dropout), Dropout(model.dropout)
        self.weights, self.state = {way: 0.5 for way in WAYS}, {}
        self.first = 0  # first of this process's streams
        self.validation_state: tuple[Tensor, Tensor] | None = None  # states of its streams
        number_layers(self)

    def begin(self, first: int, count: int) -> None:
        """Reset the states of this process's `count` streams, of which the first has the number `first`."""
        self.first = first
        h, c = self.model.silence(count)
        self.state = {"h": h, "c": c}

    def count(self, batch: Batch) -> dict[str, Tensor]:
        halves = batch.weights.chunk(2, 1)
        return {way: half.sum(dtype=torch.float64) for way, half in zip(WAYS, halves, strict=True)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.streams is not None
        streams = batch.streams - self.first
        hidden, h, c = self._read(batch, self.state["h"][streams], self.state["c"][streams])
        self.state["h"][streams], self.state["c"][streams] = h.detach(), c.detach()
        losses = self._losses(batch, hidden) if batch.candidates is None else self._sampled(batch, hidden)
        more = self.settings.scale - 1  # added to the gradient only; the loss keeps its value
        return {way: loss + more * (loss - loss.detach()) for way, loss in zip(WAYS, losses, strict=True)}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.streams is not None
        streams = int(batch.streams.max()) + 1
        if self.validation_state is None or len(self.validation_state[0]) < streams:
            self.validation_state = self.model.silence(streams)
        hidden, h, c = self._read(batch, *(state[batch.streams] for state in self.validation_state))
        for state, new in zip(self.validation_state, (h, c), strict=True):
            state[batch.streams] = new
        sums = dict(zip(WAYS, self._losses(batch, hidden), strict=True))
        for way, inputs in zip(WAYS, self._loss_inputs(batch, hidden), strict=True):
            sums[f"{way}_right"] = token_hits(*inputs)
        return sums

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Return the perplexity of each direction and of the mean loss, as the reference implementation does."""
        losses = {"perplexity": sum(means[way] for way in WAYS) / 2}
        losses |= {f"perplexity_{way}": means[way] for way in WAYS}
        return {name: math.exp(min(loss, 100.0)) for name, loss in losses.items()}  # e^1000 would overflow

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        scores = {"validation": loss, **dict.fromkeys(WAYS, loss), **{f"{way}_right": right for way in WAYS}}
        return scores | dict.fromkeys(self.measures, math.exp(min(loss, 100.0)))

    def flops(self, rows: int, length: int) -> float:
        scored = self.settings.samples or self.vocabulary
        return 3.0 * rows * length * (self.model_settings.flops(length) + self.model_settings.head_flops(scored))

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        code = (
            "import os\n\n"
            'os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported; with pip install tf-keras\n'
            "from simple_elmo import ElmoModel\n\n"
            "model = ElmoModel()\n"
            f"model.load({json.dumps(name)})\n"
            'vectors = model.get_elmo_vectors([["This", "is", "a", "text", "."]])\n'
        )
        options = (
            f"{in_python(name, code)}\n\n"
            "AllenNLP's `Elmo` loads `options.json` and `model.hdf5` if layers are residual, filters and cells are\n"
            "more than the width, and words have 50 characters; `ordsmed import` converts the folder for ordsmed."
        )
        return Usage("feature-extraction", "gives vectors of words in their sentence, from their characters", options)

    def networks(self) -> dict[str, Network]:
        modules = {"model": self.model, **({"head": self.head} if self.settings.head else {})}
        return {"": Network(self.model_settings, modules)}

    def describe(self, device: str, precision: str) -> list[str]:
        scored = f"{self.settings.samples:,} sampled words" if self.settings.samples else "all words"
        return [f"{self.elmo.describe(device, precision)}; softmax over {scored}"]

    def _read(self, batch: Batch, h: Tensor, c: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return the last layer's states of both directions, [B, T, P] each; new streams start from a zero state."""
        assert batch.characters is not None
        assert batch.words is not None
        begins = (batch.positions[:, 0] == 0)[:, None, None, None]
        h, c = (state.masked_fill(begins, 0.0) for state in (h, c))
        longest = self.elmo.longest_word
        ahead, back = batch.tokens.chunk(2, 1)
        layers, h, c = self.model(symbols(batch.characters, batch.words, longest), ahead, back, h, c)
        tops = (self.dropout_ahead(layers[-1][0]), self.dropout_back(layers[-1][1]))
        return [top.transpose(0, 1) for top in tops], h, c

    def _losses(self, batch: Batch, hidden: list[Tensor]) -> list[Tensor]:
        return [token_loss(*inputs) for inputs in self._loss_inputs(batch, hidden)]

    def _loss_inputs(self, batch: Batch, hidden: list[Tensor]) -> list[Any]:
        words, bias = self.head.table.weight, self.head.bias
        halves = zip(hidden, batch.targets.chunk(2, 1), batch.weights.chunk(2, 1), strict=True)
        return [(states.contiguous(), words, bias, targets, weights) for states, targets, weights in halves]

    def _sampled(self, batch: Batch, hidden: list[Tensor]) -> list[Tensor]:
        """Return the losses over targets and candidates, with one embedding look-up for both directions."""
        assert batch.candidates is not None
        assert batch.tries is not None
        sizes = [half.numel() for half in batch.targets.chunk(2, 1)]
        words = torch.cat([batch.candidates, *(half.flatten() for half in batch.targets.chunk(2, 1))])
        rows = F.embedding(words, self.head.table.weight)
        biases = F.embedding(words, self.head.bias[:, None]).squeeze(1)  # F.embedding adds gradients in a fixed order
        biases = biases - log_expected(words, batch.tries, self.vocabulary)
        of_candidates, *of_targets = zip(
            *(x.split([len(batch.candidates), *sizes]) for x in (rows, biases)), strict=True
        )
        halves = zip(hidden, of_targets, batch.targets.chunk(2, 1), batch.weights.chunk(2, 1), strict=True)
        return [
            sampled_loss(states, of_target, of_candidates, targets, weights, batch.candidates)
            for states, of_target, targets, weights in halves
        ]
