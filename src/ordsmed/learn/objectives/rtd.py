"""Replaced-token detection: a small generator fills masks, and a network detects which tokens it replaced.

[CLS] the cat sat [SEP]  ->  [CLS] the [MASK] sat [SEP]  -> generator ->  [CLS] the dog sat [SEP]  ->  0 0 1 0 0

ELECTRA (Clark et al. 2020). Both networks are trained at once; no gradient passes through the generator's draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ordsmed.base import chance
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.data.batch import Batch, batch_of
from ordsmed.data.pairs import PairRows
from ordsmed.data.record_rows import ImportedRows
from ordsmed.data.rows import Frame, PackedRows, see
from ordsmed.data.store import Store
from ordsmed.data.windows import Ints
from ordsmed.learn import masking, sampling
from ordsmed.learn.objective import CorruptedRows, Network, Objective, masked, need, predictions
from ordsmed.learn.phases import OVER, Phase, Stretch
from ordsmed.learn.score.metrics import share_guessed
from ordsmed.learn.usage import TEXT, Usage, in_python, loaded
from ordsmed.nn.dropout import number_layers
from ordsmed.nn.loss import token_hits, token_loss_and_draws
from ordsmed.nn.model import DetectingSettings
from ordsmed.text.tokenizer import Tokenizer

SHOWN = 0.15  # share of the chosen positions that stay unmasked for the generator (ELECTRA's code)

RIGHT = {"detect_right": "detects which words were replaced"}


@dataclass(frozen=True)
class Generator:
    """The size of the generator network, which draws replacements."""

    width: int = 0
    """hidden size of the generator; 0: a quarter of the model's"""
    layers: int = 0
    """number of layers of the generator; 0: as many as the model"""
    heads: int = 0
    """number of attention heads; 0: width / 64"""
    inner: int = 0
    """feed-forward size: width of the hidden layer; 0: 4 x width"""


@dataclass(frozen=True)
class Rtd(Choice):
    """Replaced-token detection."""

    VERBS: ClassVar[tuple[str, ...]] = ("fill",)
    CHANGES: ClassVar[tuple[str, ...]] = ("mask_prob", "detect_weight", "guess_weight", "temperature", "never_right")
    mask_prob: float = 0.15
    """share of a row's tokens, including special tokens, that the generator fills; elsewhere mlm_probability,
    mask_prob"""
    generator: Generator = field(default_factory=Generator)
    """size of the generator"""
    share: Literal["embeddings", "words", "all", "none"] = "embeddings"
    """weights that both networks share: embeddings (all tables and their norm), words (one table), all, or none"""
    detect_weight: float = 50.0
    """weight of the detection loss; elsewhere disc_weight"""
    guess_weight: float = 1.0
    """weight of the generator's loss; elsewhere gen_weight"""
    temperature: float = 1.0
    """sampling temperature of the generator"""
    never_right: bool = False
    """never draw the original token"""
    single: float = 0.1
    """unpacked rows: share of examples of one segment"""
    short: float = 0.05
    """unpacked rows: share of examples that are shorter than a row"""
    examples: Literal["made", "given"] = "made"
    """unpacked rows: made from the text, or those of encoded TFRecords (given)"""
    reference_duplicates: bool = False
    """choose positions with replacement, and mix the draws of a repeated position, as the reference implementation"""

    COMPARABLE: ClassVar[bool] = False  # as the generator learns, its replacements become harder to detect
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("examples",)

    def __post_init__(self) -> None:
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob: found {self.mask_prob}; wanted a share above 0 and below 1")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature: found {self.temperature}; wanted a finite number above 0")
        for name in ("detect_weight", "guess_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 0 or more")
        for name in ("single", "short"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted a share, 0 to 1")

    def slots(self, length: int) -> int:
        """Return the number of prediction slots of a row, ELECTRA's `max_predictions_per_seq`."""
        return max(1, int((self.mask_prob + 0.005) * length))

    def others(self, model: DetectingSettings) -> dict[str, Any]:
        """Return the settings of further networks by name: the generator, if it is a separate network."""
        self._need_head(model)
        if model.types < 2:
            raise RecipeError("model.types", f"found {model.types}", "2 or more: one per segment")
        if self.share == "all":
            if self.generator != Generator():
                problem = 'found a size with share = "all"'
                wanted = "no size: the generator is the model itself"
                raise RecipeError("objective.generator", problem, wanted, "leave it out")
            return {}
        generator = self.generator
        width, layers = generator.width or max(model.width // 4, 1), generator.layers or model.layers
        if width > model.width:
            problem = f"found {width}, more than the model's width of {model.width}"
            raise RecipeError("objective.generator.width", problem, f"{model.width} or less")
        embedded = model.embedded if self.share != "none" else width
        try:
            return {"generator": model.generator(width, layers, generator.heads, generator.inner, embedded)}
        except ValueError as error:
            key, _, rest = str(error).partition(": ")
            raise RecipeError(f"objective.generator.{key}", rest) from None

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        need(tokenizer, "start", "stop", "mask", "pad", by="rtd")

    def rows(
        self,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
        stretch: Stretch = OVER,
    ) -> ReplacedRows:
        return ReplacedRows(self, stores, weights, tokenizer, phase, *key)

    def build(self, model: DetectingSettings, tokenizer: Tokenizer) -> Replaced:
        return Replaced(self, model, tokenizer.vocabulary)

    def alone(self, model: DetectingSettings, tokenizer: Tokenizer) -> Detector:
        """Return the main network without its generator, for inference."""
        self._need_head(model)
        return Detector(model, tokenizer.vocabulary)

    def _need_head(self, model: DetectingSettings) -> None:
        if not model.capabilities.detects:
            problem = "rtd with a model without a detection head"
            raise RecipeError("objective.kind", problem, 'kind = "electra" in [model]', "or use mlm")


class ReplacedRows(CorruptedRows):
    """Rows with masks for the generator: packed rows, or ELECTRA's examples of two segments (pack = false)."""

    def __init__(
        self,
        settings: Rtd,
        stores: Sequence[Store],
        weights: Sequence[float],
        tokenizer: Tokenizer,
        phase: Phase,
        *key: object,
    ) -> None:
        settings.check_tokenizer(tokenizer)
        frame = {"start": tokenizer.start or 0, "stop": tokenizer.stop or 0, "pad": tokenizer.pad or 0}
        if phase.length < 5:
            raise RecipeError("phase.length", f"found {phase.length}", "5 or more")
        if phase.pack and settings.examples == "given":
            raise RecipeError("phase.pack", 'found true with examples = "given"', "false")
        if phase.pack:
            self.plain = PackedRows.of(stores, weights, Frame(phase.length, *frame.values()), *key, pack=True)
        elif settings.examples == "given":
            self.plain = ImportedRows(stores, weights, length=phase.length, **frame, style="electra", key=key)
        else:
            short, single = settings.short, settings.single
            self.plain = PairRows(
                stores, weights, length=phase.length, **frame, style="electra", short=short, single=single, key=key
            )
        self.settings, self.mask = settings, tokenizer.mask or 0
        self.key, self.slots = chance.key("rtd", *key), settings.slots(phase.length)

    def batch(self, numbers: Ints) -> Batch:
        rows, options = self.plain.assembled(numbers), self.settings
        amount = masking.amounts(rows.inner, options.mask_prob, self.slots, of=rows.documents > 0)
        choose = masking.choose_again if options.reference_duplicates else masking.choose
        positions, weights = choose(rows.inner, amount, self.slots, self.key, numbers)
        shown = chance.unit(self.key, masking.KIND, numbers[:, None], np.arange(self.slots)) < SHOWN
        tokens = rows.tokens.copy()
        row, slot = np.nonzero((weights > 0) & ~shown)
        tokens[row, positions[row, slot]] = self.mask
        return batch_of(
            numbers=numbers,
            tokens=tokens,
            positions=rows.positions,
            documents=see(rows.documents),
            types=rows.types,
            predicted_positions=positions,
            targets=np.take_along_axis(rows.tokens, positions, 1),
            weights=weights,
            keys=sampling.keys(self.key, numbers),
        )

    def features(self, numbers: Ints) -> dict[str, NDArray[Any]]:
        """Return these rows, not masked, with the columns of ELECTRA's build_pretraining_dataset."""
        rows = self.plain.assembled(numbers)
        types = np.zeros_like(rows.tokens) if rows.types is None else rows.types
        return {"input_ids": rows.tokens, "input_mask": (rows.documents > 0).astype(np.int64), "segment_ids": types}


class Detector(Objective):
    def __init__(self, model: DetectingSettings, vocabulary: int) -> None:
        super().__init__()
        self.model_settings, self.vocabulary = model, vocabulary
        self.model = model.build(vocabulary)
        self.detect = model.detect_head(self.model)
        self.weights, self.state = {"detect": 1.0}, {}

    def usage(self, name: str, tokenizer: Tokenizer, learned: Any) -> Usage:
        kind = self.model_settings.architectures["detect"]
        code = (
            f"import torch\nfrom transformers import AutoTokenizer, {kind}\n\n{loaded(kind, name)}"
            f'inputs = tokenizer("{TEXT}", return_tensors="pt")\n'
            "print((model(**inputs).logits > 0).long())  # 1: replaced\n"
        )
        does = "detects which tokens of a text were replaced"
        return Usage("feature-extraction", does, in_python(name, code))


class Replaced(Detector):
    def __init__(self, settings: Rtd, model: DetectingSettings, vocabulary: int) -> None:
        further = settings.others(model)
        super().__init__(model, vocabulary)
        self.settings, self.generator_settings = settings, further.get("generator", model)
        self.generator = self.generator_settings.build(vocabulary) if further else self.model
        if settings.share in ("embeddings", "words"):
            self.generator.words = self.model.words
        if settings.share == "embeddings":
            self.generator.places, self.generator.types = self.model.places, self.model.types
            self.generator.norm = self.model.norm
        self.head = self.generator_settings.token_head(self.generator)
        self.weights = {"guess": settings.guess_weight, "detect": settings.detect_weight}
        self.guesses = "guess"
        number_layers(self)

    def networks(self) -> dict[str, Network]:
        return {
            "": Network(self.model_settings, {"model": self.model, "detect": self.detect}),
            "generator": Network(self.generator_settings, {"model": self.generator, "head": self.head}),
        }

    def count(self, batch: Batch) -> dict[str, Tensor]:
        return {"guess": predictions(batch), "detect": _real(batch).sum(dtype=torch.float64)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        loss, drawn, _ = self._guess(batch)
        scores, fake = self._detect(batch, drawn)
        return {"guess": loss, "detect": _detection_loss(scores, fake, batch)}

    def validate(self, batch: Batch) -> dict[str, Tensor]:
        loss, drawn, inputs = self._guess(batch)
        scores, fake = self._detect(batch, drawn)
        real, called = _real(batch), scores > 0
        return {
            "guess": loss,
            "guess_right": token_hits(*inputs),
            "drawn_right": ((drawn == batch.targets) * batch.weights).sum(),
            "drawn_count": batch.weights.sum(),
            "detect": _detection_loss(scores, fake, batch),
            "detect_right": ((called == fake) & real).sum(),
            "fake_right": (called & fake).sum(),
            "fake_count": fake.sum(),
            "real_right": (~called & ~fake & real).sum(),
            "real_count": (~fake & real).sum(),
            "called_right": (called & fake).sum(),
            "called_count": (called & real).sum(),
            "original": (~fake & real).sum(),
            "original_count": real.sum(),
        }

    measures = ("balanced",)

    def derived(self, means: dict[str, float]) -> dict[str, float]:
        """Return `balanced`: the mean of the accuracies on replaced and on original tokens; 0.5 is chance."""
        both = [means[name] for name in ("fake_right", "real_right") if name in means]
        return {"balanced": sum(both) / 2} if len(both) == 2 else {}

    def guessing(self, means: dict[str, float], loss: float, right: float) -> dict[str, float]:
        scores = super().guessing(means, loss, right)
        of_fakes = share_guessed("detect", means["original"]) | {"balanced": 0.5} if "original" in means else {}
        return scores | of_fakes

    def flops(self, rows: int, length: int) -> float:
        slots = self.settings.slots(length)
        width = self.model_settings.width
        detector = length * (self.model_settings.flops(length) + 2.0 * (width**2 + width))
        generator = length * self.generator_settings.flops(length)
        return float(3 * rows * (detector + generator + slots * self.generator_settings.head_flops(self.vocabulary)))

    def _guess(self, batch: Batch) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
        """Return the generator's loss, the tokens it draws, [B, P], and the arguments of its loss."""
        assert batch.keys is not None
        hidden = self.generator(batch.tokens, batch.positions, batch.texts(self.generator), batch.types)
        inputs = masked(self.head, hidden, batch, self.vocabulary)
        count, temperature = batch.targets.shape[1], self.settings.temperature
        draw = sampling.Draw.of(
            batch.keys, count, self.vocabulary, temperature=temperature, never_right=self.settings.never_right
        )
        loss, drawn = token_loss_and_draws(*inputs, draw)
        return loss, drawn, inputs

    def _detect(self, batch: Batch, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores of every token, and which tokens differ from the original ones."""
        real = put(batch.tokens, batch.predicted_positions, batch.weights, batch.targets)
        mixed = self.settings.reference_duplicates
        shown = (put_mixed if mixed else put)(real, batch.predicted_positions, batch.weights, drawn)
        hidden = self.model(shown, batch.positions, batch.texts(self.model), batch.types)
        return self.detect(hidden), shown != real


def put(tokens: Tensor, positions: Tensor | None, weights: Tensor, words: Tensor) -> Tensor:
    """Write `words` into `tokens` at the predicted positions.

    Unused slots point to position 0, which keeps its token.
    """
    assert positions is not None
    return torch.cat([tokens[:, :1], tokens.scatter(1, positions * (weights > 0), words)[:, 1:]], 1)


def put_mixed(tokens: Tensor, positions: Tensor | None, weights: Tensor, words: Tensor) -> Tensor:
    """Write `words` as `put` does; a repeated position gets the mean of its token ids, rounded down, as in ELECTRA."""
    assert positions is not None
    at, counted = positions * (weights > 0), (weights > 0).long()
    sums = torch.zeros_like(tokens).scatter_add(1, at, words * counted)
    times = torch.zeros_like(tokens).scatter_add(1, at, counted)
    mixed = torch.where(times > 0, sums // times.clamp_min(1), tokens)
    return torch.cat([tokens[:, :1], mixed[:, 1:]], 1)


def _real(batch: Batch) -> Tensor:
    """Return which tokens are not padding; special tokens are included."""
    return torch.ones_like(batch.tokens, dtype=torch.bool) if batch.documents is None else batch.documents > 0


def _detection_loss(scores: Tensor, fake: Tensor, batch: Batch) -> Tensor:
    loss = F.binary_cross_entropy_with_logits(scores.float(), fake.float(), reduction="none")
    return (loss * _real(batch)).sum()
