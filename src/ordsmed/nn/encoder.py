"""Encoder: the Transformer of BERT, RoBERTa, ELECTRA and Megatron's BERT, its settings and its checkpoint names.

    tokens -> words + positions + types [B, T, E] -> norm, dropout -> [B, T, D] -> blocks -> hidden [B, T, D]

B batch, T tokens, D width, E width of the embeddings (D unless a family differs), V vocabulary. Norms follow the
residual sums (BERT 2018) or precede attention and feed-forward, with one more at the end (Megatron 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from ordsmed.base.checks import or_more
from ordsmed.nn import activations
from ordsmed.nn.activations import ACTIVATIONS
from ordsmed.nn.attention import SelfAttention, Visible, as_scores, visibility
from ordsmed.nn.config import expect, settings_of
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.heads import MaskedHead, PairHead, fresh, sequential
from ordsmed.nn.model import TRANSFORMER_PLAN, Block, Capabilities, Family, Model, Names, SpecialTokens, TaskKind
from ordsmed.nn.residual import Sum, and_norm
from ordsmed.nn.varlen import Texts

SIZES = {  # setting -> key of Hugging Face's config.json
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "types": "type_vocab_size",
}
NUMBERS = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_std": "initializer_range",
    "tied": "tie_word_embeddings",
}
Table = dict[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class EncoderSettings(Family):
    width: int = 768
    """hidden size: dimension of the hidden states (D); elsewhere hidden_size"""
    layers: int = 12
    """number of layers (blocks); elsewhere num_hidden_layers"""
    heads: int = 0
    """number of attention heads; 0: width / 64; elsewhere num_attention_heads"""
    inner: int = 0
    """feed-forward size: width of the hidden layer; 0: 4 x width; elsewhere intermediate_size"""
    positions: int = 512
    """longest row, in tokens; elsewhere max_position_embeddings"""
    types: int = 2
    """number of token types (segments); elsewhere type_vocab_size"""
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh"] = "gelu"
    """gelu is exact, gelu_tanh the approximation in Google's code (exported as gelu_new); elsewhere hidden_act"""
    dropout: float = 0.1
    """dropout of hidden states; elsewhere hidden_dropout_prob"""
    attention_dropout: float = 0.1
    """dropout of attention weights; elsewhere attention_probs_dropout_prob"""
    epsilon: float = 1e-12
    """epsilon of layer norms; elsewhere layer_norm_eps"""
    initializer_std: float = 0.02
    """standard deviation of initial weights; elsewhere initializer_range"""
    tied: bool = True
    """output layer and embeddings share one table; false: two tables; elsewhere tie_word_embeddings"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("tied",)
    offset: ClassVar[int] = 0  # rows of the position table before position 0
    pre_norm: ClassVar[bool] = False  # norms before attention and feed-forward, none in the embeddings, one at the end
    head_activation: ClassVar[str | None] = None  # activation of the token head; None: the network's

    def __post_init__(self) -> None:
        self.fill_defaults(inner=4 * self.width)
        or_more(self, types=0)

    @property
    def embedded(self) -> int:
        return self.width

    @property
    def residual_std(self) -> float:
        return self.initializer_std

    def build(self, vocabulary: int) -> Encoder:
        return Encoder(self, vocabulary)

    def token_head(self, model: Model) -> MaskedHead:
        chosen = ACTIVATIONS[self.head_activation or self.activation]
        return MaskedHead(model, self.width, self.embedded, self.epsilon, self.initializer_std, chosen, tied=self.tied)

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        out = nn.Linear(self.width, outputs)
        if kind == "span":
            return sequential(self.initializer_std, out=out)
        before = self.pooled() if kind == "classify" else {}
        return sequential(self.initializer_std, **before, dropout=Dropout(self.dropout), out=out)

    def pooled(self) -> dict[str, nn.Module]:
        return {"dense": nn.Linear(self.width, self.width), "tanh": nn.Tanh()}

    def smaller(self, width: int, layers: int) -> Self:
        return replace(self, width=width, layers=layers, heads=0, inner=0)

    def longest(self) -> int:
        return self.positions

    def flops(self, length: int) -> float:
        multiply_adds = 4 * self.width**2 + 2 * self.width * self.inner + 2 * length * self.width
        projection = self.embedded * self.width if self.embedded != self.width else 0
        return 2.0 * (self.layers * multiply_adds + projection)

    def head_flops(self, vocabulary: int) -> float:
        return 2.0 * self.embedded * (self.width + vocabulary)

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "max_position_embeddings": self.positions + self.offset,
            "type_vocab_size": max(self.types, 1),
            "hidden_act": activations.hugging_face_name(self.activation),
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
            "layer_norm_eps": self.epsilon,
            "initializer_range": self.initializer_std,
            "pad_token_id": tokenizer.pad,
            "tie_word_embeddings": self.tied,
        }

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], **sizes: str) -> Self:
        """Read the settings from a config.json; `sizes` are further required keys by setting."""
        expect(
            config,
            position_embedding_type=("absolute",),
            is_decoder=(False,),
            add_cross_attention=(False,),
            pruned_heads=({}, None),
        )
        chosen = {"activation": activations.from_config(config, "hidden_act", "gelu")}
        numbers = NUMBERS | {"epsilon": "layer_norm_eps"}
        usual = {"layer_norm_eps": 1e-12} | config  # Hugging Face's default; families have other defaults here
        sizes = SIZES | {"positions": "max_position_embeddings"} | sizes
        return settings_of(cls, usual, sizes, numbers, less={"positions": cls.offset}, **chosen)

    def without_types(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the token types that an export adds as zeros, name -> shape, if the network has none."""
        return {} if self.types else {f"{prefix}.embeddings.token_type_embeddings.weight": (1, self.embedded)}

    def scores(self, prefix: str, decoder: str, bias: str) -> tuple[Table, dict[str, str], dict[str, str]]:
        """Return the checkpoint names of the output layer: names by tensor, tied names, and names of unused copies.

        Hugging Face's class has two biases. They are the same if the output layer is tied; otherwise it ignores `bias`.
        """
        ends, words = (f"{decoder}.{end}" for end in ("bias", "weight")), f"{prefix}.embeddings.word_embeddings.weight"
        layer_bias, layer_weight = ends
        if self.tied:
            return {"head.bias": bias}, {layer_weight: words, layer_bias: bias}, {}
        return {"head.bias": layer_bias, "head.words.weight": layer_weight}, {}, {bias: layer_bias}

    def body_names(self, prefix: str) -> tuple[Table, dict[str, str]]:
        """Return the checkpoint names of the network: by tensor, and by layer for layers with weight and bias."""
        table: Table = {
            "model.words.weight": f"{prefix}.embeddings.word_embeddings.weight",
            "model.places.weight": f"{prefix}.embeddings.position_embeddings.weight",
            "model.types.weight": f"{prefix}.embeddings.token_type_embeddings.weight",
        }
        pairs = {"model.norm": f"{prefix}.encoder.ln" if self.pre_norm else f"{prefix}.embeddings.LayerNorm"}
        pairs |= {"tag.out": "classifier", "span.out": "qa_outputs"}
        first, second = ("attention.ln", "ln") if self.pre_norm else ("attention.output.LayerNorm", "output.LayerNorm")
        for n in range(self.layers):
            block, hf_block = f"model.blocks.{n}", f"{prefix}.encoder.layer.{n}"
            pairs |= {
                f"{block}.attention.mix": f"{hf_block}.attention.output.dense",
                f"{block}.attention_norm": f"{hf_block}.{first}",
                f"{block}.up": f"{hf_block}.intermediate.dense",
                f"{block}.down": f"{hf_block}.output.dense",
                f"{block}.norm": f"{hf_block}.{second}",
            }
            for end in ("weight", "bias"):
                parts = tuple(f"{hf_block}.attention.self.{part}.{end}" for part in ("query", "key", "value"))
                table[f"{block}.attention.gather.{end}"] = parts
        return table, pairs


@dataclass(frozen=True)
class PairedEncoderSettings(EncoderSettings):
    """Settings of BERT and Megatron's BERT, which also have a head for sentence pairs."""

    deep: bool = False
    """initialize residual projections with std / sqrt(2 x layers)"""

    capabilities: ClassVar[Capabilities] = Capabilities(types=True, tensor=True, pairs=True)
    begins: ClassVar[Mapping[str, str]] = {"classify.dense": "pair.dense"}

    @property
    def residual_std(self) -> float:
        return deep(self.initializer_std, self.layers) if self.deep else self.initializer_std

    def pair_head(self, model: Model) -> PairHead:
        return PairHead(self.width, self.initializer_std)

    def names(self) -> Names:
        table, pairs = self.body_names("bert")
        pairs |= {
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "pair.dense": "bert.pooler.dense",
            "pair.out": "cls.seq_relationship",
            "classify.dense": "bert.pooler.dense",
            "classify.out": "classifier",
        }
        dropped = (".pooler.dense.weight", ".pooler.dense.bias", "seq_relationship.weight", "seq_relationship.bias")
        scores, tied, copies = self.scores("bert", "cls.predictions.decoder", "cls.predictions.bias")
        return Names(
            table | both_ends(pairs) | scores,
            self.heads,
            "bert.",
            tied=tied,
            copies=copies,
            others=dropped,
            buffers=("position_ids",),
            zeros=self.without_types("bert"),
        )


def both_ends(pairs: dict[str, str]) -> Table:
    return {f"{name}.{end}": f"{hf_name}.{end}" for name, hf_name in pairs.items() for end in ("weight", "bias")}


class Encoder(Model):
    takes_texts = takes_positions = True
    types: nn.Embedding | None
    project: nn.Linear | None

    def __init__(self, settings: EncoderSettings, vocabulary: int) -> None:
        super().__init__()
        self.offset, self.pre_norm, width = settings.offset, settings.pre_norm, settings.embedded
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(settings.positions + settings.offset, width)
        self.types = nn.Embedding(settings.types, width) if settings.types else None
        if not self.pre_norm:
            self.norm = nn.LayerNorm(width, settings.epsilon)
        self.dropout = Dropout(settings.dropout)
        self.project = nn.Linear(width, settings.width) if width != settings.width else None
        block = PreNormBlock if settings.pre_norm else PostNormBlock
        self.blocks = nn.ModuleList(block(settings) for _ in range(settings.layers))
        if self.pre_norm:  # created after the blocks: learning rates by layer depend on this order
            self.norm = nn.LayerNorm(width, settings.epsilon)
        self.apply(lambda module: fresh(module, settings.initializer_std))
        if settings.residual_std != settings.initializer_std:
            for name, weight in self.named_parameters():
                if name.endswith(("mix.weight", "down.weight")):
                    nn.init.normal_(weight, std=settings.residual_std)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        documents: Tensor | Texts | None = None,
        types: Tensor | None = None,
        at: Tensor | None = None,
    ) -> Tensor:
        x = self.words(tokens) + self.places(positions + self.offset if self.offset else positions)
        if self.types is not None:
            embedded = x.dtype  # fp32 type embeddings must not promote the states of all blocks
            x = x + (self.types.weight[0] if types is None else self.types(types))
            x = x.to(embedded) if self.pre_norm else x
        x = self.dropout(x if self.pre_norm else self.norm(x))
        if self.project is not None:
            x = self.project(x)
        visible = as_scores(visibility(documents, causal=False, blocks=self.blocks))
        *before, last = self.blocks
        for block in before:
            x = block(x, visible)
        x = last(x, visible) if at is None else last(x, visible, at)
        out: Tensor = self.norm(x) if self.pre_norm else x
        return out


class PostNormBlock(Block):
    """Attention, add and norm; feed-forward, add and norm.

    `forward` fuses sums, dropout and norms if a kernel supports it, and computes:

        x = norm(x + dropout(attention(x)))
        x = norm(x + dropout(down(activation(up(x)))))
    """

    tensor_plan = TRANSFORMER_PLAN

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        width = settings.width
        self.attention = SelfAttention(width, settings.heads, settings.attention_dropout, causal=False)
        self.attention_norm = nn.LayerNorm(width, settings.epsilon)
        self.up, self.down = nn.Linear(width, settings.inner), nn.Linear(settings.inner, width)
        self.norm = nn.LayerNorm(width, settings.epsilon)
        self.attention_dropout, self.dropout = Dropout(settings.dropout), Dropout(settings.dropout)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Tensor, visible: Visible, at: Tensor | None = None) -> Tensor:
        first = Sum(chosen(x, at), self.attention.mix, self.attention_dropout, self.attention_norm, self.attention)
        x, kept = first.normed(self.attention(x, visible, mix=lambda mixed: first.product(chosen(mixed, at))))
        second = Sum(kept, self.down, self.dropout, self.norm)
        return second.normed(second.product(activations.activated(self.up, self.activation, x)))[0]


class PreNormBlock(PostNormBlock):
    """Norm, attention, add; norm, feed-forward, add.

    `forward` fuses sums, dropout and norms if a kernel supports it, and computes:

        x = x + dropout(attention(norm(x)))
        x = x + dropout(down(activation(up(norm(x)))))
    """

    def forward(self, x: Tensor, visible: Visible, at: Tensor | None = None) -> Tensor:
        x, read = and_norm(x, self.attention_norm)
        first = Sum(chosen(x, at), self.attention.mix, self.attention_dropout, self.norm, self.attention)
        x, read = first.and_norm(self.attention(read, visible, mix=lambda mixed: first.product(chosen(mixed, at))))
        second = Sum(x, self.down, self.dropout)
        return second.alone(second.product(activations.activated(self.up, self.activation, read)))


def chosen(x: Tensor, at: Tensor | None) -> Tensor:
    """Return the states at the positions `at` of x [B, T, D] with rows end to end, as [1, N, D]; None: all states."""
    return x if at is None else x.flatten(0, 1).index_select(0, at)[None]


def deep(std: float, layers: int) -> float:
    """Return the initial std of residual projections in GPT-2 and Megatron: std / sqrt(2 x layers)."""
    return std / math.sqrt(2 * layers)
