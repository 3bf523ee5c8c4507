"""GPT-2: a pre-norm Transformer decoder with learned positions (Radford et al. 2019).

B batch, T tokens, D width, V vocabulary. Sizes are those of the release, under their present and their first names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from ordsmed.base.menu import Choice
from ordsmed.nn import activations
from ordsmed.nn.activations import ACTIVATIONS
from ordsmed.nn.attention import Cache, KeyValueCache, SelfAttention, Visible, as_scores, visibility
from ordsmed.nn.config import expect, settings_of
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.heads import scored_words, sequential
from ordsmed.nn.model import (
    TRANSFORMER_PLAN,
    Block,
    Capabilities,
    Family,
    Model,
    Names,
    SpecialTokens,
    TaskKind,
    TokenHead,
    classes,
    size,
)
from ordsmed.nn.residual import Sum, and_norm
from ordsmed.nn.varlen import Texts


@dataclass(frozen=True)
class Gpt2(Family, Choice):
    """A GPT-2; `size` names one of: mini 124M 355M 774M 1558M (or the release's first names 117M 345M 762M 1.5B)."""

    width: int = 768
    """hidden size: dimension of the hidden states (D); elsewhere n_embd, hidden_size"""
    layers: int = 12
    """number of layers (blocks); elsewhere n_layer, num_hidden_layers"""
    heads: int = 0
    """number of attention heads; 0: width / 64; elsewhere n_head, num_attention_heads"""
    inner: int = 0
    """feed-forward size: width of the hidden layer; 0: 4 x width; elsewhere n_inner, intermediate_size"""
    positions: int = 1024
    """longest row, in tokens; elsewhere n_positions, max_position_embeddings"""
    dropout: float = 0.1
    """dropout of embeddings and residuals; elsewhere resid_pdrop, embd_pdrop"""
    attention_dropout: float = 0.1
    """dropout of attention weights; elsewhere attn_pdrop"""
    epsilon: float = 1e-5
    """epsilon of layer norms; elsewhere layer_norm_epsilon"""
    initializer_std: float = 0.02
    """standard deviation of initial weights; elsewhere initializer_range"""
    positions_initializer_std: float = 0.01
    """standard deviation of initial position embeddings (0.02 in Megatron)"""
    deep: bool = True
    """initialize residual projections with std / sqrt(2 x layers), as in the paper"""
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh"] = "gelu_tanh"
    """activation of the feed-forward layers; elsewhere activation_function"""
    tied: bool = True
    """output layer and embeddings share one table; false: two tables"""
    scaled: bool = True
    """attention scores are divided by the square root of the head size"""
    scaled_by_layer: bool = False
    """attention scores are also divided by the layer's number, counted from 1"""
    causal: bool = True
    """causal attention; false: bidirectional, for a fine-tuned hybrid"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("activation", "tied", "scaled", "scaled_by_layer", "causal")

    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "mini": size(4, 256),
        "124M": size(12, 768),
        "355M": size(24, 1024),
        "774M": size(36, 1280),
        "1558M": size(48, 1600),
        "117M": size(12, 768),
        "345M": size(24, 1024),
        "762M": size(36, 1280),
        "1.5B": size(48, 1600),
    }
    capabilities: ClassVar[Capabilities] = Capabilities(causal=True, cached=True, tensor=True, both=True)
    model_type: ClassVar[str] = "gpt2"
    architectures: ClassVar[dict[str, str]] = classes("GPT2", head="LMHeadModel")

    def __post_init__(self) -> None:
        self.fill_defaults(inner=4 * self.width)
        if not self.causal:
            self.override(architectures={}, capabilities=replace(self.capabilities, causal=False))

    def build(self, vocabulary: int) -> Gpt2Model:
        return Gpt2Model(self, vocabulary)

    def token_head(self, model: Model) -> NextHead:
        return NextHead(self, model)

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        before = {"dropout": Dropout(self.dropout)} if kind == "tag" else {}
        return sequential(self.initializer_std, **before, out=nn.Linear(self.width, outputs, bias=kind != "classify"))

    def smaller(self, width: int, layers: int) -> Gpt2:
        return replace(self, width=width, layers=layers, heads=0, inner=0)

    def flops(self, length: int) -> float:
        # causal attention computes half of the square
        attention = self.width * (length + 1 if self.causal else 2 * length)
        return 2.0 * self.layers * (4 * self.width**2 + 2 * self.width * self.inner + attention)

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        end = tokenizer.separator
        return {
            "vocab_size": vocabulary,
            "n_embd": self.width,
            "n_layer": self.layers,
            "n_head": self.heads,
            "n_inner": self.inner,
            "n_positions": self.positions,
            "n_ctx": self.positions,
            "activation_function": activations.hugging_face_name(self.activation),
            "resid_pdrop": self.dropout,
            "embd_pdrop": self.dropout,
            "attn_pdrop": self.attention_dropout,
            "layer_norm_epsilon": self.epsilon,
            "initializer_range": self.initializer_std,
            "tie_word_embeddings": self.tied,
            "scale_attn_weights": self.scaled,
            "scale_attn_by_inverse_layer_idx": self.scaled_by_layer,
            "bos_token_id": end,
            "eos_token_id": end,
        }

    def names(self) -> Names:
        pairs = {"model.norm": "transformer.ln_f", "tag.out": "classifier", "span.out": "qa_outputs"}
        for n in range(self.layers):
            name, hf_name = f"model.blocks.{n}", f"transformer.h.{n}"
            pairs |= {
                f"{name}.attention_norm": f"{hf_name}.ln_1",
                f"{name}.attention.gather": f"{hf_name}.attn.c_attn",
                f"{name}.attention.mix": f"{hf_name}.attn.c_proj",
                f"{name}.norm": f"{hf_name}.ln_2",
                f"{name}.up": f"{hf_name}.mlp.c_fc",
                f"{name}.down": f"{hf_name}.mlp.c_proj",
            }
        table: dict[str, str | tuple[str, ...]] = {
            "model.words.weight": "transformer.wte.weight",
            "model.places.weight": "transformer.wpe.weight",
            "classify.out.weight": "score.weight",
        }
        table |= {f"{name}.{end}": f"{hf_name}.{end}" for name, hf_name in pairs.items() for end in ("weight", "bias")}
        scores, words = ("lm_head.weight", "transformer.lm_head.weight"), "transformer.wte.weight"
        table |= {} if self.tied else {"head.words.weight": scores[0]}
        return Names(
            table,
            self.heads,
            "transformer.",
            transposed=True,
            fused=True,
            tied=dict.fromkeys(scores, words) if self.tied else {},
            buffers=(".attn.bias", ".attn.masked_bias"),
        )

    @staticmethod
    def from_hugging_face(config: dict[str, Any]) -> Gpt2:
        expect(config, add_cross_attention=(False,), pruned_heads=({}, None))
        sizes = {"width": "n_embd", "layers": "n_layer", "heads": "n_head", "positions": "n_positions"}
        sizes |= {"inner": "n_inner"} if config.get("n_inner") is not None else {}
        numbers = {
            "dropout": "resid_pdrop",
            "attention_dropout": "attn_pdrop",
            "epsilon": "layer_norm_epsilon",
            "initializer_std": "initializer_range",
            "tied": "tie_word_embeddings",
            "scaled": "scale_attn_weights",
            "scaled_by_layer": "scale_attn_by_inverse_layer_idx",
        }
        chosen = activations.from_config(config, "activation_function", "gelu_new")
        return settings_of(Gpt2, {"n_positions": 1024, **config}, sizes, numbers, activation=chosen)


class Gpt2Model(Model):
    takes_texts = True

    def __init__(self, settings: Gpt2, vocabulary: int) -> None:
        super().__init__()
        self.causal = settings.causal
        self.words = nn.Embedding(vocabulary, settings.width)
        self.places = nn.Embedding(settings.positions, settings.width)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Gpt2Block(settings, layer) for layer in range(settings.layers))
        self.norm = nn.LayerNorm(settings.width, settings.epsilon)
        self._fresh(settings)

    def _fresh(self, settings: Gpt2) -> None:
        """Initialize as GPT-2: normal 0.02, positions 0.01, residual projections divided by sqrt(2 L), biases 0."""
        residual = settings.initializer_std / (math.sqrt(2 * settings.layers) if settings.deep else 1)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" not in name:
                std = residual if name.endswith(("mix.weight", "down.weight")) else settings.initializer_std
                nn.init.normal_(parameter, std=settings.positions_initializer_std if name == "places.weight" else std)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        documents: Tensor | Texts | None = None,
        types: Tensor | None = None,
        *,
        causal: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Encode tokens.

        Rows where `causal` [B] is False are bidirectional. `cache` has the tokens that were read before.
        """
        x = self.dropout(self.words(tokens) + self.places(positions))
        if cache is not None:
            assert not isinstance(documents, Texts)
            visible: Visible = cache.visible(tokens.shape[1], documents, tokens.device)
            for block, layer_cache in zip(self.blocks, cache.layers, strict=True):
                x = block(x, visible, cache=layer_cache)
            normed: Tensor = self.norm(x)
            return normed
        visible = as_scores(visibility(documents, causal=self.causal, rows=causal, blocks=self.blocks))
        for block in self.blocks:
            x = block(x, visible)
        output: Tensor = self.norm(x)
        return output


class Gpt2Block(Block):
    """Norm, attention, add; norm, feed-forward, add.

    `forward` fuses sums, dropout and norms if a kernel supports it, and computes:

        x = x + dropout(attention(norm(x)))
        x = x + dropout(down(activation(up(norm(x)))))
    """

    tensor_plan = TRANSFORMER_PLAN

    def __init__(self, settings: Gpt2, layer: int) -> None:
        super().__init__()
        width = settings.width
        scale = 1 / math.sqrt(width // settings.heads) if settings.scaled else 1.0
        scale /= layer + 1 if settings.scaled_by_layer else 1
        self.attention_norm = nn.LayerNorm(width, settings.epsilon)
        dropout = settings.attention_dropout
        self.attention = SelfAttention(width, settings.heads, dropout, causal=settings.causal, scale=scale)
        self.norm = nn.LayerNorm(width, settings.epsilon)
        self.up, self.down = nn.Linear(width, settings.inner), nn.Linear(settings.inner, width)
        self.attention_dropout, self.dropout = Dropout(settings.dropout), Dropout(settings.dropout)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Tensor, visible: Visible, *, cache: KeyValueCache | None = None) -> Tensor:
        x, read = and_norm(x, self.attention_norm)
        first = Sum(x, self.attention.mix, self.attention_dropout, self.norm, self.attention)
        x, read = first.and_norm(self.attention(read, visible, cache=cache, mix=first.product))
        second = Sum(x, self.down, self.dropout)
        return second.alone(second.product(activations.activated(self.up, self.activation, read)))


class NextHead(TokenHead):
    def __init__(self, settings: Gpt2, model: Model) -> None:
        super().__init__()
        self.words, self.bias = scored_words(model, settings.initializer_std, tied=settings.tied), None

    def transform(self, hidden: Tensor) -> Tensor:
        return hidden
