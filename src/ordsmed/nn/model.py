"""Model: the interface that model families offer to the rest of ordsmed.

    tokens [B, T] -> Model -> hidden [B, T, D] -> TokenHead -> scores over the vocabulary

Every file in models/ has a settings class with these methods; no other code depends on a family's name.
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
TASK_CLASSES: dict[TaskKind, str] = {  # endings of Hugging Face's class names by task
    "classify": "ForSequenceClassification",
    "tag": "ForTokenClassification",
    "span": "ForQuestionAnswering",
}

PIPELINES: dict[TaskKind, str] = {  # Hugging Face's pipelines by task
    "classify": "text-classification",
    "tag": "token-classification",
    "span": "question-answering",
}


@dataclass(frozen=True)
class Capabilities:
    """Properties of a family that are known before a network is built."""

    causal: bool = False  # a token attends only to itself and earlier tokens
    cached: bool = False  # supports a cache of keys and values
    state: bool = False  # carries a recurrent state between rows
    types: bool = False  # has token types
    tensor: bool = False  # has a tensor-parallel plan
    pairs: bool = False  # has a head for pairs of segments
    detects: bool = False  # has a head that detects replaced tokens, and generators
    compiled: bool = True  # torch.compile makes it faster
    both: bool = False  # supports causal and bidirectional rows in one batch


@dataclass(frozen=True)
class Tuning:
    """The default fine-tuning settings of a family."""

    learning_rate: float
    warmup: float = 0.1  # share of the steps
    layer_decay: float = 1.0
    decay: float = 0.01  # weight decay
    betas: tuple[float, float] = (0.9, 0.999)
    freeze: bool = False  # train only the head
    pool: Literal["mean"] | None = None  # input of a new text head; None: the first token's state (causal: the last)


class Block(nn.Module):
    """One layer of a network: the unit of sharding, activation checkpointing, compilation and prefetching."""

    # tensor-parallel plan: layers are split by "column" or "row"; "norm" for norms; "split" for dropout whose
    # activations are always split; other parts are replicated
    tensor_plan: ClassVar[dict[str, str]] = {}
    compiled = False  # compiled blocks need a mask, because the sizes of texts differ in every batch

    def compile(self, *args: Any, **options: Any) -> None:
        self.compiled = True
        super().compile(*args, **options)


TRANSFORMER_PLAN = {
    "attention.gather": "column",
    "attention.mix": "row",
    "attention.dropout": "split",
    "attention_norm": "norm",
    "up": "column",
    "down": "row",
    "norm": "norm",
}


class Model(nn.Module):
    words: nn.Embedding  # the embeddings that heads are tied to
    takes_texts: ClassVar[bool] = False  # `documents` may be nn/varlen.py's `Texts`
    takes_positions: ClassVar[bool] = False  # `at` may select positions of the rows end to end

    def forward(
        self, tokens: Tensor, positions: Tensor, documents: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        """Map ids [B, T] to hidden states [B, T, D].

        Tokens with equal `documents` attend to each other (0: padding); None: all do. Networks with the capability
        `both` also take `causal`, those with `cached` also take `cache` (nn/attention.py).
        """
        raise NotImplementedError


class TokenHead(nn.Module):
    """Hidden states to scores over the vocabulary, with the network's word table or a separate one."""

    words: nn.Embedding
    bias: nn.Parameter | None

    def transform(self, hidden: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(self.transform(hidden), self.words.weight, self.bias)


class WordTable(nn.Module):
    table: nn.Embedding
    bias: nn.Parameter


class SpecialTokens(Protocol):
    """The properties of a tokenizer that a family needs: its kind and the ids of its special tokens."""

    @property
    def kind(self) -> str:
        """Return the model type as the tokenizers library names it."""

    @property
    def pad(self) -> int | None:
        """Return the id of the padding token."""

    @property
    def start(self) -> int | None:
        """Return the id of the token before a text."""

    @property
    def stop(self) -> int | None:
        """Return the id of the token after a text."""

    @property
    def separator(self) -> int | None:
        """Return the id of the token between texts."""


class Width(Protocol):
    @property
    def width(self) -> int:
        """Return the dimension of the hidden states."""


class Family:
    """Defaults of the methods and class variables that all families share."""

    width: int  # settings of a Transformer; other families override the methods that use them
    heads: int
    inner: int
    positions: int
    dropout: float

    capabilities: ClassVar[Capabilities] = Capabilities()
    model_type: ClassVar[str] = ""  # Hugging Face's name of the family
    architectures: ClassVar[dict[str, str]] = {}  # Hugging Face's class by exported heads: "", "head", "head pair"...
    begins: ClassVar[Mapping[str, str]] = {}  # layers of task heads -> layers of pretrained heads that initialize them

    other_types: ClassVar[tuple[str, ...]] = ()  # further Hugging Face names of the family
    poolings: ClassVar[tuple[str, ...]] = ()  # further supported values of `classifier_pooling` in config.json

    def override(self, **variables: object) -> None:
        """Override class variables for these settings only."""
        for name, value in variables.items():
            object.__setattr__(self, name, value)

    def fits(self, tokenizer: SpecialTokens) -> None:
        """Raise an error if the network cannot work with this tokenizer."""

    def longest(self) -> int:
        return self.positions

    def head_flops(self, vocabulary: int) -> float:
        """Return the FLOPs per token of a head that is only the product with the word table."""
        return 2.0 * self.width * vocabulary

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        """Build a task head over states of the first token (causal: the last), or of all tokens."""
        return nn.Sequential(OrderedDict(dropout=Dropout(self.dropout), out=nn.Linear(self.width, outputs)))

    def tuning(self) -> Tuning:
        """Return the default fine-tuning settings: BERT's rate of 3e-5, or more for narrower networks."""
        return Tuning(learning_rate=small_rate(self, base=3e-5))

    def fill_defaults(self, *, inner: int, counts: tuple[str, ...] = ()) -> None:
        """Fill in sizes that follow from the width; raise an error if a size, deviation or dropout rate is invalid."""
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
    """The interface of the settings class of every file in models/."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    capabilities: ClassVar[Capabilities]
    model_type: ClassVar[str]
    architectures: ClassVar[dict[str, str]]
    begins: ClassVar[Mapping[str, str]]
    poolings: ClassVar[tuple[str, ...]]

    @property
    def width(self) -> int:
        """Return the dimension of the hidden states."""

    @property
    def layers(self) -> int:
        """Return the number of blocks."""

    def fits(self, tokenizer: SpecialTokens) -> None:
        """Raise an error if the network cannot work with this tokenizer."""

    def build(self, vocabulary: int) -> Model:
        """Build the network with new weights."""

    def token_head(self, model: Model) -> TokenHead:
        """Build the head that predicts tokens."""

    def tuning(self) -> Tuning:
        """Return the default fine-tuning settings."""

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        """Build the head of a task, over the states of texts or of all their tokens."""

    def smaller(self, width: int, layers: int) -> ModelSettings:
        """Return settings of the same family in another size."""

    def longest(self) -> int:
        """Return the maximum number of tokens in a row."""

    def flops(self, length: int) -> float:
        """Return the forward FLOPs per token (2 x multiply-adds) without heads, in rows of `length` tokens."""

    def head_flops(self, vocabulary: int) -> float:
        """Return the forward FLOPs per token (2 x multiply-adds) of the token head."""

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        """Return the config.json for export, without model type and architecture."""

    def names(self) -> Names:
        """Return the table of checkpoint names for import and export."""


class PairSettings(ModelSettings, Protocol):
    """Settings of families with a head for pairs of segments."""

    types: int

    def pair_head(self, model: Model) -> nn.Module:
        """Build the head over a row's first token."""


class DetectingSettings(ModelSettings, Protocol):
    """Settings of families that detect replaced tokens and offer smaller generators (ELECTRA)."""

    types: int

    @property
    def embedded(self) -> int:
        """Return the dimension of the embeddings."""

    def detect_head(self, model: Model) -> nn.Module:
        """Build the head over all tokens."""

    def generator(self, width: int, layers: int, heads: int, inner: int, embedding: int) -> ModelSettings:
        """Return settings of the same network in another size, with embeddings of dimension `embedding`."""


class CarryingSettings(ModelSettings, Protocol):
    """Settings of families that read in both directions and carry a recurrent state between rows (ELMo)."""

    dropout: float
    longest_word: int

    def word_head(self, vocabulary: int) -> WordTable:
        """Build the output layer that both directions use."""

    def describe(self, device: str, precision: str) -> str:
        """Return a line that says which LSTM implementation runs on a device."""


def size(layers: int, width: int, **more: int) -> dict[str, int]:
    """Return the settings of a Transformer with the usual ratios of sizes; `more`: settings that differ."""
    return {"layers": layers, "width": width, "heads": width // 64, "inner": 4 * width, **more}


NARROW = 512  # narrower networks use measured learning rates (docs/log, 2026-11-29)
RATES = ((NARROW, 1e-4), (320, 5e-4), (160, 1e-3), (0, 1.5e-3))  # (minimum width, fine-tuning rate)


def small_rate(settings: Width, *, base: float) -> float:
    """Return a rate for fine-tuning: that of a base-sized network, or more if the network is narrower."""
    return base if settings.width >= 768 else max(base, next(rate for width, rate in RATES if settings.width >= width))


def classes(stem: str, **ends: str) -> dict[str, str]:
    """Return the Hugging Face class names of a family, by the heads that are exported.

    `ends`: endings of the names by heads, with `_` for a space (`head_pair`: head and pair). The classes of task heads
    are added.
    """
    spaced = {heads.replace("_", " "): end for heads, end in ends.items()}
    return {heads: f"{stem}{end}" for heads, end in ({"": "Model"} | spaced | {**TASK_CLASSES}).items()}


@dataclass(frozen=True)
class Names:
    """The checkpoint names of a network's tensors in Hugging Face's format; weights/weights.py applies them."""

    table: Mapping[str, str | tuple[str, ...]]  # project name -> checkpoint name; a tuple: query, key and value
    heads: int  # attention heads, to reorder fused tensors
    prefix: str  # checkpoint prefix of the network without its head
    transposed: bool = False  # the checkpoint stores weights as [in, out]
    fused: bool = False  # the checkpoint stores query, key and value one after the other in one tensor
    halves: int = 0  # if the checkpoint's up-projection is [value, gate]: this network's number of such pairs
    zeros: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # not in the network; exported as zeros
    tied: Mapping[str, str] = field(default_factory=dict)  # checkpoint name -> name of the tensor it is tied to
    copies: Mapping[str, str] = field(default_factory=dict)  # unused but required tensor -> name of the tensor to copy
    buffers: tuple[str, ...] = ()  # endings of checkpoint names that are not parameters
    others: tuple[str, ...] = ()  # endings of heads that a checkpoint may contain


def own_tensors(module: nn.Module) -> dict[str, Any]:
    """Return the tensors of a module, each once; a tied table has the first of its names."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor
    return tensors
