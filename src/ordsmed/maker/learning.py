"""Choice of network, objective and rate: a new network as large as time and text allow, or a model to continue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ordsmed.api.model import OpenModel
from ordsmed.base import menu, settings
from ordsmed.maker import networks, texts
from ordsmed.maker.networks import FamilyPlan, Table
from ordsmed.maker.request import MakeRequest
from ordsmed.maker.texts import InputTexts
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.weights.trained_model import Trained, open_model

RATES = {
    64: 3e-3,
    128: 2.5e-3,
    192: 2e-3,
    256: 1.5e-3,
    384: 1e-3,
    512: 8e-4,
    640: 6e-4,
    768: 5e-4,
    1024: 3e-4,
}  # learning rates by width
CONTINUED_RATE = 0.25  # share of a new network's rate, for a model to continue
LONGEST_CONTINUED = 128  # tokens of a row, for such a model
FITTING = 200_000  # characters on which a vocabulary is tested
MOST_UNKNOWN, LEAST_BYTES = 0.01, 3.0  # limits for a fitting vocabulary: share of unknown pieces, bytes a piece


@dataclass(frozen=True)
class Scope:
    speed: float  # operations a second
    seconds: float  # seconds of training
    unique: float  # tokens of the text, each counted once
    vocabulary: int
    alphabet: int  # characters


@dataclass(frozen=True)
class Learning:
    family: FamilyPlan
    network: networks.NetworkSize
    objective: Table
    length: int
    learning_rate: float
    vocabulary: int
    tokenizer: Table | str  # the table of a new tokenizer, or the folder of an existing one
    described: str
    passes: float  # most passes over the text
    more: Table = field(default_factory=dict)  # further settings of the recipe
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> int:
        return self.network.weights + self.vocabulary * int(self.network.table["width"])

    def passes_end_it(self, scope: Scope) -> bool:
        """Return whether training ends by the limit on passes, before the time is used up."""
        return self.network.tokens >= 0.999 * self.passes * scope.unique


def fresh(request: MakeRequest, scope: Scope) -> Learning:
    """Return a new network that is as large as time and text allow."""
    family, vocabulary = networks.families()[request.family], scope.vocabulary
    objective = {**family.objective, **(family.of_many if vocabulary >= networks.MANY else {})}
    length = family.length or request.time.row_length
    ladder = networks.network_sizes(family, vocabulary, length)
    operations = scope.speed * scope.seconds
    network = networks.best(ladder, operations, scope.unique, family.passes)
    passes = networks.max_passes(network, scope.unique, family)
    network = networks.with_predicted_loss(network, operations, scope.unique, passes)
    if network.tokens > networks.REPEATED * scope.unique:
        network = replace(network, table={**network.table, **family.repeated})
    width = network.table["width"]
    size = f"{network.table['layers']} layers of width {width}" if "layers" in network.table else f"width {width}"
    rate, tokenizer = family.learning_rate * _rate(width), _tokenizer(family, scope)
    described = f"{request.family}, {size}"
    return Learning(family, network, objective, length, rate, vocabulary, tokenizer, described, passes)


def continued(request: MakeRequest, inputs: InputTexts, scope: Scope, fits: bool | None = None) -> Learning:
    """Continue a model with its vocabulary if that fits the text, else a new one; `fits`: as decided before."""
    model = open_model(request.start)
    family = networks.like(model.settings)
    learned = settings.plain(model.learned) if model.learned is not None else {}
    objective = learned if learned.get("kind") in menu.entries("objectives") else family.objective
    width, length = model.settings.width, min(model.settings.longest(), LONGEST_CONTINUED)
    fits_now, measured = _fits(model.tokenizer, inputs)
    fits = fits_now if fits is None else fits
    vocabulary = model.tokenizer.vocabulary if fits else scope.vocabulary
    network = networks.network_size(model.settings, {"width": width}, vocabulary, family.scored, length)
    network = networks.with_predicted_loss(network, scope.speed * scope.seconds, scope.unique, family.passes)
    note = f"its vocabulary fits the text: {measured}"
    if not fits:
        kind = family.tokenizer["kind"]
        note = (
            f"its vocabulary does not fit the text ({measured}): a {kind} is learned, its vectors begin as the model's"
        )
    notes = (note, *_unlike(request, model))
    more = {"init": request.start, **({} if fits else {"vocabulary": "transplant"})}
    tokenizer: Table | str = request.start if fits else _tokenizer(family, scope)
    described, rate = f"{model.kind} of {request.start}", CONTINUED_RATE * _rate(width)
    return Learning(
        family, network, objective, length, rate, vocabulary, tokenizer, described, family.passes, more, notes
    )


def _unlike(request: MakeRequest, model: Trained) -> Iterator[str]:
    """Yield notes on purposes of the request that the initial model does not support."""
    can, about = OpenModel(model).can, f"the {model.kind} of {request.start}"
    if request.purpose in ("write", "both") and not model.continues:
        options = "writes by filling masks" if "generate" in can else "writes no texts"
        remedy = "leave --from out, or name a model that writes from left to right, as a GPT-2"
        yield f"{about} reads the words on both sides: it is trained to fill gaps and {options}; to write well {remedy}"
    if request.purpose in ("fill", "both") and "fill" not in can:
        yield f"{about} fills no gaps: it is trained on as what it is; to fill gaps leave --from out"


def _tokenizer(family: FamilyPlan, scope: Scope) -> Table:
    """Return the tokenizer's table; a limit on its alphabet is raised to cover the characters of the text."""
    alphabet = (
        {"alphabet": 2 * scope.alphabet} if 2 * scope.alphabet > family.tokenizer.get("alphabet", math.inf) else {}
    )
    return {**family.tokenizer, "size": scope.vocabulary, **alphabet}


def _rate(width: int) -> float:
    return RATES[min(RATES, key=lambda known: abs(known - width))]


def _fits(tokenizer: Tokenizer, inputs: InputTexts) -> tuple[bool, str]:
    """Return whether a vocabulary encodes the texts in few pieces with hardly any unknown ones, and the figures."""
    text = texts.excerpt(inputs, FITTING)
    ids = tokenizer.encode_batch([text])[0]
    unknown = sum(1 for number in ids if number == tokenizer.unknown) / max(len(ids), 1)
    bytes_a_piece = len(text.encode()) / max(len(ids), 1)
    fits = unknown <= MOST_UNKNOWN and bytes_a_piece >= LEAST_BYTES
    return fits, f"{bytes_a_piece:.2f} bytes a piece, {unknown:.1%} unknown"
