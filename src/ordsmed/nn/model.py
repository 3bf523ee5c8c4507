"""Model: what a family offers the rest of ordsmed.

    tokens [B, T] -> Model -> hidden [B, T, D] -> TokenHead -> scores over the vocabulary

Every file in models/ has a choice with these methods; nothing else knows a family by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor, nn

from ordsmed.base.checks import or_more
from ordsmed.nn.dropout import Dropout

TaskKind = Literal["classify", "tag", "span"]
TASK_CLASSES: dict[TaskKind, str] = {  # how Hugging Face's classes with such a head end
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}

PIPELINES: dict[TaskKind, str] = {  # and its pipelines over such a head
    "classify": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
}


@dataclass(frozen=True)
class Capabilities:
    """What is asked before anything is built."""

    causal: bool = False  # a token sees only what stands before it
    cached: bool = False  # can go on from keys and values it keeps
    state: bool = False  # carries state from window to window
    types: bool = False  # knows token types
    tensor: bool = False  # has a tensor-parallel plan
    pairs: bool = False  # has a head that tells how two segments belong together
    detects: bool = False  # has a head that tells fake tokens, and smaller generators of its kind
    compiled: bool = True  # torch.compile has something to gain
    both: bool = False  # rows that see only what stands before and rows that see all, in one batch


@dataclass(frozen=True)
class Tuning:
    """How a family is usually fine-tuned, where a recipe says nothing else."""

    rate: float
    warmup: float = 0.1  # a share of the steps
    layer_decay: float = 1.0
    decay: float = 0.01  # of weights
    betas: tuple[float, float] = (0.9, 0.999)
    freeze: bool = False  # does the network below the head stay as it is?
    pool: Literal["mean"] | None = None  # state that a new head of a text reads; None: the first (causal: the last)


class Block(nn.Module):
    """One layer of a network: the unit that is split, computed again, compiled and fetched as one."""

    # how its parts lie on the ranks of a tensor group: layers by "column" or "row"; norms by "norm"; dropout whose
    # activations are always split by "split"; what is not named is whole on every rank
    tensor_plan: ClassVar[dict[str, str]] = {}
    compiled = False  # then it wants a mask, for every batch has other runs of texts

    def compile(self, *args: Any, **options: Any) -> None:
        self.compiled = True
        super().compile(*args, **options)


TRANSFORMER_PLAN = {
    "attention.gather": "column", "attention.mix": "row", "attention.dropout": "split", "attention_norm": "norm",
    "up": "column", "down": "row", "norm": "norm",
}  # fmt: skip


class Model(nn.Module):
    """Tokens to hidden states."""

    words: nn.Embedding  # the table that heads are tied to
    takes_texts: ClassVar[bool] = False  # may `documents` be nn/varlen.py's Texts?
    takes_positions: ClassVar[bool] = (
        False  # may `at` say of which places of all rows end to end the states are wanted?
    )

    def forward(
        self, tokens: Tensor, positions: Tensor, documents: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """[B, T] ids -> [B, T, D]; `documents`: tokens see each other where equal (0 = padding), None: all do.

        With `Capabilities(both=True)` it takes `causal`, with `cached` a `cache` of nn/attention.py as well.
        """
        raise NotImplementedError


class TokenHead(nn.Module):
    """Hidden states to scores over the vocabulary, by the network's word table or one of its own."""

    words: nn.Embedding
    bias: nn.Parameter | None

    def transform(self, hidden: Tensor) -> Tensor:
        """What comes before the product with the word table."""
        raise NotImplementedError

    def forward(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]."""
        return nn.functional.linear(self.transform(hidden), self.words.weight, self.bias)


class WordTable(nn.Module):
    """Scores over the vocabulary by a table and a bias of its own."""

    table: nn.Embedding
    bias: nn.Parameter


class SpecialTokens(Protocol):
    """What a family asks of a tokenizer: its kind, and the ids of its special tokens."""

    @property
    def kind(self) -> str:
        """As the library of tokenizers calls it."""

    @property
    def pad(self) -> int | None:
        """What fills rows."""

    @property
    def start(self) -> int | None:
        """Before a text."""

    @property
    def stop(self) -> int | None:
        """Behind a text."""

    @property
    def separator(self) -> int | None:
        """Between texts."""


class Width(Protocol):
    """Settings of a network as wide as this."""

    @property
    def width(self) -> int:
        """Numbers a token of a layer."""


class Family:
    """What the settings of a family are, beside their numbers."""

    width: int  # what the settings of a Transformer have; others say what follows from them themselves
    heads: int
    inner: int
    positions: int
    dropout: float

    capabilities: ClassVar[Capabilities] = Capabilities()
    model_type: ClassVar[str] = ""  # what Hugging Face calls it
    architectures: ClassVar[dict[str, str]] = {}  # its class there, by the heads kept: "", "head", "head pair"...
    begins: ClassVar[Mapping[str, str]] = {}  # layers of tasks' heads -> those of pretrained heads that they begin as

    other_types: ClassVar[tuple[str, ...]] = ()  # more of what Hugging Face calls it
    poolings: ClassVar[tuple[str, ...]] = ()  # of `classifier_pooling` in its config.json, next to the usual one

    def say_otherwise(self, **facts: object) -> None:
        """Of these settings hold other facts than of the family's usual ones."""
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def fits(self, tokenizer: SpecialTokens) -> None:
        """Refuse a tokenizer that such a network cannot work with."""

    def longest(self) -> int:
        """As many tokens as there are positions."""
        return self.positions

    def head_flops(self, vocabulary: int) -> float:
        """A product with the word table, and nothing before it."""
        return 2.0 * self.width * vocabulary

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        """[E, D] of a text's first token (causal: of its last), or [..., D] of all -> [..., outputs]."""
        return nn.Sequential(OrderedDict(dropout=Dropout(self.dropout), out=nn.Linear(self.width, outputs)))

    def tuning(self) -> Tuning:
        """BERT's way: 3e-5 for base and large, more for the smaller ones (its release's grid goes to 3e-4)."""
        return Tuning(rate=small_rate(self, base=3e-5))

    def fill_defaults(self, *, inner: int, counts: tuple[str, ...] = ()) -> None:
        """Fill in what is left to the width; refuse sizes, standard deviations and dropouts that cannot be."""
        object.__setattr__(self, "heads", self.heads or max(1, self.width // 64))
        object.__setattr__(self, "inner", self.inner or inner)
        or_more(self, **dict.fromkeys(("width", "layers", "heads", "inner", "positions", *counts), 1))
        if self.width % self.heads:
            raise ValueError(f"heads: found {self.heads}; wanted a divisor of the width {self.width}")
        for name in (f.name for f in fields(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if name == "epsilon" and not 0 <= value < 1:
                raise ValueError(f"{name}: found {value}; wanted 0 to below 1")
            if name.endswith(("initializer_std", "spread")) and not 0 < value < 10:
                raise ValueError(f"{name}: found {value}; wanted above 0, to 10")
            if name.endswith("dropout") and not 0 <= value < 1:
                raise ValueError(f"{name}: found {value}; wanted 0 to below 1")


class ModelSettings(Protocol):
    """What every file in models/ offers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    capabilities: ClassVar[Capabilities]
    model_type: ClassVar[str]
    architectures: ClassVar[dict[str, str]]
    begins: ClassVar[Mapping[str, str]]
    poolings: ClassVar[tuple[str, ...]]

    @property
    def width(self) -> int:
        """Numbers a token of a layer."""

    @property
    def layers(self) -> int:
        """Its blocks."""

    def fits(self, tokenizer: SpecialTokens) -> None:
        """Refuse a tokenizer that such a network cannot work with."""

    def build(self, vocabulary: int) -> Model:
        """The network, with fresh weights."""

    def token_head(self, model: Model) -> TokenHead:
        """The head that predicts tokens."""

    def tuning(self) -> Tuning:
        """How it is usually fine-tuned."""

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        """The head of a task, over the states of texts or of all their tokens."""

    def smaller(self, width: int, layers: int) -> ModelSettings:
        """The same family in another size."""

    def longest(self) -> int:
        """The longest row it can take."""

    def flops(self, length: int) -> float:
        """2 x multiply-adds of one token's way forward through the network, heads not counted."""

    def head_flops(self, vocabulary: int) -> float:
        """2 x multiply-adds of one token's way through the token head."""

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        """The config.json of this network there, without its model type and architecture."""

    def names(self) -> Names:
        """Our tensors <-> theirs."""


class PairSettings(ModelSettings, Protocol):
    """What families offer that tell how two segments belong together."""

    types: int

    def pair_head(self, model: Model) -> nn.Module:
        """The head over a row's first token."""


class DetectingSettings(ModelSettings, Protocol):
    """What families offer that tell fake tokens, and have smaller generators of their kind."""

    types: int

    @property
    def embedded(self) -> int:
        """Numbers a token is in the embeddings."""

    def detect_head(self, model: Model) -> nn.Module:
        """The head over all tokens."""

    def generator(self, width: int, layers: int, heads: int, inner: int, embedding: int) -> ModelSettings:
        """The same network in another size, over embeddings of this width."""


class CarryingSettings(ModelSettings, Protocol):
    """What families offer that read in both directions, from a state that is carried on."""

    dropout: float
    longest_word: int

    def word_head(self, vocabulary: int) -> WordTable:
        """Scores over the vocabulary, for both directions."""

    def describe(self, device: str, precision: str) -> str:
        """Which cell runs on a device."""


def size(layers: int, width: int, **more: int) -> dict[str, int]:
    """The numbers that a Transformer's size stands for; `more`: other ones than BERT's."""
    return {"layers": layers, "width": width, "heads": width // 64, "inner": 4 * width, **more}


NARROW = 512  # widths below it are learned at rates from measurements (docs/log, 2026-11-29)
RATES = ((NARROW, 1e-4), (320, 5e-4), (160, 1e-3), (0, 1.5e-3))  # for fine-tuning, from the width on


def small_rate(settings: Width, *, base: float) -> float:
    """Return a rate for fine-tuning: that of a base-sized network, or more if the network is narrower."""
    return base if settings.width >= 768 else max(base, next(rate for width, rate in RATES if settings.width >= width))


def classes(stem: str, **ends: str) -> dict[str, str]:
    """The classes of a family there, by the heads: `ends` of their names, and those of tasks; head_pair: head pair."""
    spaced = {heads.replace("_", " "): end for heads, end in ends.items()}
    return {heads: f"{stem}{end}" for heads, end in ({"": "Model"} | spaced | {**TASK_CLASSES}).items()}


@dataclass(frozen=True)
class Names:
    """A rename table: what a tensor of ours is in a foreign checkpoint; see weights/weights.py for how it is read."""

    table: Mapping[str, str | tuple[str, ...]]  # ours -> theirs; several: query, key, value in one
    heads: int  # for the ones that are fused
    prefix: str  # theirs for the network without its head
    transposed: bool = False  # they keep [in, out]
    fused: bool = False  # theirs holds query, key and value one after the other in one tensor
    halves: int = 0  # above 0: their up holds what is gated and its gate, ours pairs of so many runs
    zeros: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # theirs that a network of ours does not have
    tied: Mapping[str, str] = field(default_factory=dict)  # theirs that repeat another of theirs -> that one
    copies: Mapping[str, str] = field(default_factory=dict)  # theirs that nobody reads, but that must be there: copies
    buffers: tuple[str, ...] = ()  # endings of theirs that hold nothing to learn
    others: tuple[str, ...] = ()  # endings of heads of theirs that may stand beside a network


def own_tensors(module: nn.Module) -> dict[str, Any]:
    """The tensors of a network, each once: a tied table stands under its first name."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors
