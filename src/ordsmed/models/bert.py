"""BERT: a post-norm Transformer encoder with learned positions (Devlin et al. 2018).

B batch, T tokens, D width, V vocabulary. Sizes: BERT's release of 24 small models and its base and large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.attention import SelfAttention, visibility
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.foreign import expect
from ordsmed.nn.model import TRANSFORMER_PLAN, Block, Capabilities, Model, Names, TokenHead

GELUS = {"gelu": "none", "gelu_tanh": "tanh"}
HUGGING_FACE_GELUS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}
THEIR_GELUS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def _size(layers: int, width: int) -> dict[str, int]:
    return {"layers": layers, "width": width, "heads": width // 64, "inner": 4 * width}


@dataclass(frozen=True)
class Settings:
    """A BERT; `size` names one of: tiny mini small medium base large."""

    width: int = 768
    """numbers a token is in the network (D)"""
    layers: int = 12
    """blocks"""
    heads: int = 0
    """attention heads; 0: width / 64"""
    inner: int = 0
    """width inside the feed-forward layers; 0: 4 x width"""
    positions: int = 512
    """longest row"""
    types: int = 2
    """token types (segments)"""
    activation: Literal["gelu", "gelu_tanh"] = "gelu"
    """exact GELU, or the tanh form of Google's code (exported as gelu_new)"""
    dropout: float = 0.1
    """of hidden states"""
    attention_dropout: float = 0.1
    """of attention weights"""
    epsilon: float = 1e-12
    """of layer norms"""
    spread: float = 0.02
    """standard deviation of fresh weights"""

    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": _size(2, 128), "mini": _size(4, 256), "small": _size(4, 512),
        "medium": _size(8, 512), "base": _size(12, 768), "large": _size(24, 1024),
    }  # fmt: skip
    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", self.heads or max(1, self.width // 64))
        object.__setattr__(self, "inner", self.inner or 4 * self.width)
        for name in ("width", "layers", "heads", "inner", "positions", "types"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")
        if self.width % self.heads:
            raise ValueError(f"heads: found {self.heads}; wanted a divisor of the width {self.width}")
        if not 0 < self.spread < 10:
            raise ValueError(f"spread: found {self.spread}; wanted above 0, to 10")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 0 to below 1")

    def build(self, vocabulary: int) -> Bert:
        return Bert(self, vocabulary)

    def token_head(self, model: Model) -> MaskedHead:
        return MaskedHead(self, model)

    def smaller(self, width: int, layers: int) -> Settings:
        return replace(self, width=width, layers=layers, heads=0, inner=0)

    def longest(self) -> int:
        return self.positions

    def flops(self, length: int) -> float:
        multiply_adds = 4 * self.width**2 + 2 * self.width * self.inner + 2 * length * self.width
        return 2.0 * self.layers * multiply_adds

    def head_flops(self, vocabulary: int) -> float:
        return 2.0 * (self.width**2 + self.width * vocabulary)

    def hugging_face(self, vocabulary: int, tokenizer: Any) -> dict[str, Any]:
        return {
            "architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": vocabulary,
            "hidden_size": self.width, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "intermediate_size": self.inner, "max_position_embeddings": self.positions, "type_vocab_size": self.types,
            "hidden_act": HUGGING_FACE_GELUS[self.activation], "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.attention_dropout, "layer_norm_eps": self.epsilon,
            "initializer_range": self.spread, "pad_token_id": tokenizer.pad, "tie_word_embeddings": True,
        }  # fmt: skip

    def names(self) -> Names:
        table: dict[str, str | tuple[str, ...]] = {
            "model.words.weight": "bert.embeddings.word_embeddings.weight",
            "model.places.weight": "bert.embeddings.position_embeddings.weight",
            "model.types.weight": "bert.embeddings.token_type_embeddings.weight",
            "head.bias": "cls.predictions.bias",
        }
        pairs = {"model.norm": "bert.embeddings.LayerNorm", "head.dense": "cls.predictions.transform.dense",
                 "head.norm": "cls.predictions.transform.LayerNorm"}  # fmt: skip
        for n in range(self.layers):
            ours, theirs = f"model.blocks.{n}", f"bert.encoder.layer.{n}"
            pairs |= {
                f"{ours}.attention.mix": f"{theirs}.attention.output.dense",
                f"{ours}.attention_norm": f"{theirs}.attention.output.LayerNorm",
                f"{ours}.up": f"{theirs}.intermediate.dense",
                f"{ours}.down": f"{theirs}.output.dense",
                f"{ours}.norm": f"{theirs}.output.LayerNorm",
            }
            for end in ("weight", "bias"):
                parts = tuple(f"{theirs}.attention.self.{part}.{end}" for part in ("query", "key", "value"))
                table[f"{ours}.attention.gather.{end}"] = parts
        table |= {f"{ours}.{end}": f"{theirs}.{end}" for ours, theirs in pairs.items() for end in ("weight", "bias")}
        tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
        return Names(table, self.heads, "bert.", tied=tied, ignored=("position_ids", ".pooler.dense.weight",
                     ".pooler.dense.bias", "seq_relationship.weight", "seq_relationship.bias"))  # fmt: skip

    @staticmethod
    def from_hugging_face(config: dict[str, Any]) -> Settings:
        """The settings a Hugging Face config.json means."""
        expect(config, hidden_act=tuple(THEIR_GELUS), position_embedding_type=("absolute",), is_decoder=(False,),
               tie_word_embeddings=(True,))  # fmt: skip
        return Settings(
            width=config["hidden_size"], layers=config["num_hidden_layers"], heads=config["num_attention_heads"],
            inner=config["intermediate_size"], positions=config["max_position_embeddings"],
            types=config["type_vocab_size"], dropout=config.get("hidden_dropout_prob", 0.1),
            activation=THEIR_GELUS[config.get("hidden_act", "gelu")],  # type: ignore[arg-type]
            attention_dropout=config.get("attention_probs_dropout_prob", 0.1),
            epsilon=config.get("layer_norm_eps", 1e-12), spread=config.get("initializer_range", 0.02),
        )  # fmt: skip


class Bert(Model):
    """Embeddings, norm, dropout, blocks."""

    def __init__(self, settings: Settings, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, settings.width)
        self.places = nn.Embedding(settings.positions, settings.width)
        self.types = nn.Embedding(settings.types, settings.width)
        self.norm = nn.LayerNorm(settings.width, settings.epsilon)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(BertBlock(settings) for _ in range(settings.layers))
        self.apply(lambda module: fresh(module, settings.spread))

    def forward(
        self, tokens: Tensor, positions: Tensor, documents: Tensor | None = None, types: Tensor | None = None
    ) -> Tensor:
        kind = self.types.weight[0] if types is None else self.types(types)
        x = self.dropout(self.norm(self.words(tokens) + self.places(positions) + kind))
        visible = visibility(documents, causal=False)
        for block in self.blocks:
            x = block(x, visible)
        return x


class BertBlock(Block):
    """Attention, add and norm; feed-forward, add and norm."""

    tensor_plan = TRANSFORMER_PLAN

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.attention = SelfAttention(width, settings.heads, settings.attention_dropout, causal=False)
        self.attention_norm = nn.LayerNorm(width, settings.epsilon)
        self.up, self.down = nn.Linear(width, settings.inner), nn.Linear(settings.inner, width)
        self.norm = nn.LayerNorm(width, settings.epsilon)
        self.attention_dropout, self.dropout = Dropout(settings.dropout), Dropout(settings.dropout)
        self.gelu = GELUS[settings.activation]

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        x = self.attention_norm(self.attention_dropout.add(self.attention(x, visible), x))
        inner = F.gelu(self.up(x), approximate=self.gelu)
        return self.norm(self.dropout.add(self.down(inner), x))


class MaskedHead(TokenHead):
    """Dense, GELU, norm, and the word table with a bias a token."""

    def __init__(self, settings: Settings, model: Model) -> None:
        super().__init__()
        self.words = model.words
        self.dense = nn.Linear(settings.width, settings.width)
        self.norm = nn.LayerNorm(settings.width, settings.epsilon)
        self.bias = nn.Parameter(torch.zeros(model.words.num_embeddings))
        self.gelu = GELUS[settings.activation]
        fresh(self.dense, settings.spread)

    def transform(self, hidden: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(hidden), approximate=self.gelu))


def fresh(module: nn.Module, spread: float) -> None:
    """Fresh weights: normal with this spread, biases 0; norms are as torch makes them."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=spread)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
