"""ModernBERT: a pre-norm encoder with rotary positions, gated feed-forward layers and mostly local attention.

    tokens -> words -> norm, dropout -> blocks -> last norm -> hidden [B, T, D]

B batch, T tokens, D width, H heads, d = D / H, V vocabulary (Warner et al. 2024). Every third layer, starting with the
first, attends to the whole document; the others attend to half a window on each side. By default, only the scores of
words have a bias. The rows of the up-projection are G pairs of values and gates, [G, 2, inner / G], so that a split of
the rows for tensor parallelism is a split of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ordsmed.base.menu import Choice
from ordsmed.nn import activations
from ordsmed.nn.activations import ACTIVATIONS
from ordsmed.nn.attention import Cache, KeyValueCache, SelfAttention, Visible, as_scores, nearby, visibility
from ordsmed.nn.config import expect, settings_of, table_of
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.encoder import deep
from ordsmed.nn.heads import scored_words, sequential
from ordsmed.nn.model import (
    TASK_CLASSES,
    TRANSFORMER_PLAN,
    Block,
    Capabilities,
    Family,
    Model,
    Names,
    SpecialTokens,
    TaskKind,
    TokenHead,
    Tuning,
    classes,
    size,
)
from ordsmed.nn.residual import Sum, and_norm
from ordsmed.nn.rotary import FAST, SLOW, RopeScaling, angles
from ordsmed.nn.varlen import Texts

GLOBAL, LOCAL = "full_attention", "sliding_attention"
DECODER = "modernbert-decoder"
YARN_DEFAULTS = {
    "attention_factor": (None,),
    "mscale": (None,),
    "truncate": (True, None),
    "beta_fast": (FAST, None),
    "beta_slow": (SLOW, None),
}  # YaRN keys of config.json, supported only with the values of the paper
DECODER_WINDOW = 2  # Hugging Face's decoder counts a window 2 tokens larger, because it includes the token itself


@dataclass(frozen=True)
class ModernBert(Family, Choice):
    """A ModernBERT; `size` names one of: small base large."""

    width: int = 768
    """hidden size: dimension of the hidden states (D); elsewhere hidden_size"""
    layers: int = 22
    """number of layers (blocks); elsewhere num_hidden_layers"""
    heads: int = 0
    """number of attention heads; 0: width / 64; elsewhere num_attention_heads"""
    inner: int = 0
    """feed-forward size, of the values and of their gates; 0: 1.5 x width;
    elsewhere intermediate_size"""
    positions: int = 8192
    """longest row, in tokens; elsewhere max_position_embeddings"""
    every: int = 3
    """every n-th layer, starting with the first, has global attention; the others have local attention;
    elsewhere global_attn_every_n_layers"""
    window: int = 128
    """window of local attention in tokens, half to each side; elsewhere local_attention"""
    theta: float = 160_000.0
    """RoPE base of layers with global attention; elsewhere global_rope_theta"""
    local_theta: float = 10_000.0
    """RoPE base of layers with local attention"""
    dropout: float = 0.0
    """dropout of the attention's output (0.1 in the paper)"""
    attention_dropout: float = 0.0
    """dropout of attention weights"""
    embedding_dropout: float = 0.0
    """dropout of embeddings"""
    inner_dropout: float = 0.0
    """dropout inside the feed-forward layers"""
    epsilon: float = 1e-5
    """epsilon of layer norms"""
    initializer_std: float = 0.02
    """standard deviation of initial weights, truncated at twice its value; residual projections: / sqrt(2 x layers);
    elsewhere initializer_range"""
    whole: tuple[int, ...] | None = None
    """layers with global attention, counted from 0; left out: by `every`"""
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh"] = "gelu"
    """activation of the feed-forward layers"""
    head_activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "relu2", "silu", "tanh"] = "gelu"
    """activation of heads"""
    norm_bias: bool = False
    """layer norms have a bias"""
    attention_bias: bool = False
    """linear layers of the attention have a bias"""
    inner_bias: bool = False
    """feed-forward layers have a bias"""
    head_bias: bool = False
    """dense layers of heads have a bias"""
    word_bias: bool = True
    """the output layer over the vocabulary has a bias"""
    tied: bool = True
    """output layer and embeddings share one table; false: two tables"""
    causal: bool = False
    """causal attention: a ModernBERT decoder"""
    rope_scaling: RopeScaling | None = None
    """scaling of the angles of layers with global attention, for rows longer than in pretraining:
    { kind = "yarn", factor = 8 }; left out: none"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = (
        "whole",
        "activation",
        "head_activation",
        "norm_bias",
        "attention_bias",
        "inner_bias",
        "head_bias",
        "word_bias",
        "tied",
        "causal",
        "rope_scaling",
    )
    CHANGES: ClassVar[tuple[str, ...]] = ("theta", "local_theta", "rope_scaling", "window")

    SIZES: ClassVar[dict[str, dict[str, int]]] = {
        "small": size(12, 384, inner=576),
        "base": size(22, 768, inner=1152),
        "large": size(28, 1024, inner=2624),
    }
    capabilities: ClassVar[Capabilities] = Capabilities(cached=True, tensor=True, both=True)
    model_type: ClassVar[str] = "modernbert"
    other_types: ClassVar[tuple[str, ...]] = (DECODER,)
    poolings: ClassVar[tuple[str, ...]] = ("mean",)
    architectures: ClassVar[dict[str, str]] = classes("ModernBert", head="ForMaskedLM")
    begins: ClassVar[Mapping[str, str]] = {
        f"{kind}.{part}": f"head.{part}" for kind in TASK_CLASSES for part in ("dense", "norm")
    }

    def __post_init__(self) -> None:
        self.fill_defaults(inner=max(1, 3 * self.width // 2), counts=("every", "window"))
        if self.width % (2 * self.heads):
            raise ValueError(f"heads: found {self.heads}; wanted a divisor of half the width {self.width}")
        if self.whole is not None and not all(0 <= layer < self.layers for layer in self.whole):
            raise ValueError(f"whole: found {list(self.whole)}; wanted layers, 0 to {self.layers - 1}")
        for name in ("theta", "local_theta"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted 1 or more")
        if self.causal:
            classes = {"": "ModernBertDecoderModel", "head": "ModernBertDecoderForCausalLM"}
            able = replace(self.capabilities, causal=True)
            self.override(model_type=DECODER, architectures=classes, capabilities=able)

    @property
    def reach(self) -> int:
        return self.window // 2

    @property
    def runs(self) -> int:
        """Return the number G of (value, gate) pairs in the rows of `up`.

        Every number of tensor-parallel ranks that divides heads and inner size also divides G.
        """
        return math.gcd(self.inner, self.heads)

    def local(self, layer: int) -> bool:
        return layer % self.every > 0 if self.whole is None else layer not in self.whole

    def build(self, vocabulary: int) -> Modern:
        return Modern(self, vocabulary)

    def token_head(self, model: Model) -> ModernHead:
        return ModernHead(self, model)

    def task_head(self, kind: TaskKind, outputs: int) -> nn.Module:
        dense, out = nn.Linear(self.width, self.width, bias=self.head_bias), nn.Linear(self.width, outputs)
        activation = Activated(self.head_activation)
        head = sequential(self.initializer_std, dense=dense, gelu=activation, norm=_norm(self), out=out)
        _fresh(dense.weight, deep(self.initializer_std, self.layers))
        _fresh(out.weight, self.width**-0.5)
        return head

    def tuning(self) -> Tuning:
        """Return the defaults, with mean pooling as in published ModernBERTs."""
        return replace(super().tuning(), pool=None if self.causal else "mean")

    def smaller(self, width: int, layers: int) -> ModernBert:
        return replace(self, width=width, layers=layers, heads=0, inner=0, whole=None)

    def longest(self) -> int:
        return self.positions

    def flops(self, length: int) -> float:
        reach, sides = min(self.reach, length - 1), 1 if self.causal else 2
        near = sides * reach + 1 - sides * reach * (reach + 1) / (2 * length)  # the mean: fewer at the ends of a row
        whole = (length + 1) / 2 if self.causal else length
        seen = sum(near if self.local(n) else whole for n in range(self.layers))
        linear = self.layers * (4 * self.width**2 + 3 * self.width * self.inner)
        return 2.0 * (linear + 2 * seen * self.width)

    def head_flops(self, vocabulary: int) -> float:
        return 2.0 * self.width * (self.width + vocabulary)

    def hugging_face(self, vocabulary: int, tokenizer: SpecialTokens) -> dict[str, Any]:
        """Return the config of transformers 5, with the keys of transformers 4 in addition.

        transformers 4 supports neither linear scaling nor YaRN.
        """
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": self.theta}
        if self.rope_scaling:
            rope = self.rope_scaling.hugging_face(self.theta, self.width // self.heads, self.positions)
        return {
            "vocab_size": vocabulary,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "max_position_embeddings": self.positions,
            "hidden_activation": activations.hugging_face_name(self.activation),
            "classifier_activation": activations.hugging_face_name(self.head_activation),
            "layer_types": [LOCAL if self.local(n) else GLOBAL for n in range(self.layers)],
            "global_attn_every_n_layers": self.every,
            "local_attention": self.window + DECODER_WINDOW * self.causal,
            "rope_parameters": {GLOBAL: rope, LOCAL: {"rope_type": "default", "rope_theta": self.local_theta}},
            "global_rope_theta": rope["rope_theta"],
            "local_rope_theta": self.local_theta,
            "attention_dropout": self.attention_dropout,
            "embedding_dropout": self.embedding_dropout,
            "mlp_dropout": self.inner_dropout,
            "norm_eps": self.epsilon,
            "initializer_range": self.initializer_std,
            "initializer_cutoff_factor": 2.0,
            "norm_bias": self.norm_bias,
            "attention_bias": self.attention_bias,
            "mlp_bias": self.inner_bias,
            "classifier_bias": self.head_bias,
            "decoder_bias": self.word_bias,
            "tie_word_embeddings": self.tied,
            "pad_token_id": tokenizer.pad,
            "bos_token_id": tokenizer.start,
            "cls_token_id": tokenizer.start,
            "eos_token_id": tokenizer.stop,
            "sep_token_id": tokenizer.stop,
        }

    def names(self) -> Names:
        head = "lm_head" if self.causal else "head"
        pairs = {
            "model.words": "model.embeddings.tok_embeddings",
            "model.norm": "model.embeddings.norm",
            "model.last": "model.final_norm",
            "head.dense": f"{head}.dense",
            "head.norm": f"{head}.norm",
            **self.begins,
        }
        for n in range(self.layers):
            name, hf_name = f"model.blocks.{n}", f"model.layers.{n}"
            pairs |= {f"{name}.attention_norm": f"{hf_name}.attn_norm"} if n else {}
            pairs |= {
                f"{name}.attention.gather": f"{hf_name}.attn.Wqkv",
                f"{name}.attention.mix": f"{hf_name}.attn.Wo",
                f"{name}.norm": f"{hf_name}.mlp_norm",
                f"{name}.up": f"{hf_name}.mlp.Wi",
                f"{name}.down": f"{hf_name}.mlp.Wo",
            }
        table: dict[str, str | tuple[str, ...]] = {f"{k}.weight": f"{v}.weight" for k, v in pairs.items()}
        table |= {f"{k}.bias": f"{v}.bias" for k, v in pairs.items() if self._has_bias(k)}
        if self.causal:  # the decoder's class has separate query, key and value
            fused = {name: str(hf_name) for name, hf_name in table.items() if ".gather." in name}
            table |= {name: tuple(joint.replace("Wqkv", f"{p}_proj") for p in "qkv") for name, joint in fused.items()}
        table |= {"head.bias": "decoder.bias"} if self.word_bias else {}
        table |= {} if self.tied else {"head.words.weight": "decoder.weight"}
        for kind in TASK_CLASSES:
            table |= {f"{kind}.out.{end}": f"classifier.{end}" for end in ("weight", "bias")}
        return Names(
            table,
            self.heads,
            "model.",
            fused=True,
            halves=self.runs,
            tied={"decoder.weight": pairs["model.words"] + ".weight"} if self.tied else {},
        )

    def _has_bias(self, layer: str) -> bool:
        ends = {
            "norm": self.norm_bias,
            "last": self.norm_bias,
            "gather": self.attention_bias,
            "mix": self.attention_bias,
            "up": self.inner_bias,
            "down": self.inner_bias,
            "dense": self.head_bias,
        }
        return ends.get(layer.rpartition(".")[2].removeprefix("attention_"), False)

    @staticmethod
    def from_hugging_face(config: dict[str, Any]) -> ModernBert:
        expect(config, rope_scaling=(None,), pruned_heads=({}, None))
        sizes = {
            "width": "hidden_size",
            "layers": "num_hidden_layers",
            "heads": "num_attention_heads",
            "inner": "intermediate_size",
            "positions": "max_position_embeddings",
            "window": "local_attention",
        }
        numbers = {
            "dropout": "attention_dropout",
            "attention_dropout": "attention_dropout",
            "embedding_dropout": "embedding_dropout",
            "inner_dropout": "mlp_dropout",
            "epsilon": "norm_eps",
            "initializer_std": "initializer_range",
            "norm_bias": "norm_bias",
            "attention_bias": "attention_bias",
            "inner_bias": "mlp_bias",
            "head_bias": "classifier_bias",
            "word_bias": "decoder_bias",
            "tied": "tie_word_embeddings",
            "every": "global_attn_every_n_layers",
            "theta": "global_rope_theta",
            "local_theta": "local_rope_theta",
        }
        usual = {"max_position_embeddings": 8192, "local_attention": 128} | config
        if causal := config.get("model_type") == DECODER:
            wide = usual["local_attention"]  # an invalid value is reported by `settings_of`
            usual["local_attention"] = max(wide - DECODER_WINDOW, 1) if isinstance(wide, int) else wide
        chosen: dict[str, Any] = {
            "activation": activations.from_config(config, "hidden_activation", "gelu"),
            "head_activation": activations.from_config(config, "classifier_activation", "gelu"),
            "causal": causal,
        }
        return settings_of(ModernBert, usual, sizes, numbers, **chosen, **_thetas(config), **_whole(config))


def _whole(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of global layers; transformers 5 has a list, which precedes the step of transformers 4."""
    step, kinds, layers = config.get("global_attn_every_n_layers"), config.get("layer_types"), _layers(config)
    if kinds is None:
        return {}
    if not isinstance(kinds, list) or len(kinds) != layers or not all(kind in (GLOBAL, LOCAL) for kind in kinds):
        raise ValueError(f"layer_types: found {kinds}; wanted {GLOBAL} or {LOCAL} for each of {layers} layers")
    whole = [n for n, kind in enumerate(kinds) if kind == GLOBAL]
    steps = [step, whole[1] if len(whole) > 1 else max(layers, 1)]
    every = next((n for n in steps if isinstance(n, int) and n > 0 and whole == list(range(0, layers, n))), None)
    return {"every": every} if every else {"whole": whole, **({} if isinstance(step, int) else {"every": 3})}


def _layers(config: dict[str, Any]) -> int:
    layers = config["num_hidden_layers"]
    return layers if isinstance(layers, int) else 0


def _thetas(config: dict[str, Any]) -> dict[str, Any]:
    tables, thetas = table_of(config, "rope_parameters"), dict[str, Any]()
    for name, kind in (("theta", GLOBAL), ("local_theta", LOCAL)):
        options = table_of(tables, kind)
        scaled = ("linear", "yarn") if kind == GLOBAL else ()
        expect(options, rope_type=("default", *scaled), partial_rotary_factor=(1.0, None), **YARN_DEFAULTS)
        if options.get("rope_type", "default") != "default":
            learned = (
                {"learned": options.get("original_max_position_embeddings", 0)}
                if options["rope_type"] == "yarn"
                else {}
            )
            thetas["rope_scaling"] = {"kind": options["rope_type"], "factor": options.get("factor"), **learned}
        if "rope_theta" in options:
            thetas[name] = options["rope_theta"]
    if "local_theta" not in thetas and "local_rope_theta" in config and config["local_rope_theta"] is None:
        thetas["local_theta"] = thetas.get("theta", config.get("global_rope_theta", 160_000.0))  # as in transformers 4
    return thetas


class Modern(Model):
    takes_texts = True

    def __init__(self, settings: ModernBert, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.words = nn.Embedding(vocabulary, settings.width)
        self.norm = _norm(settings)
        self.dropout = Dropout(settings.embedding_dropout)
        self.blocks = nn.ModuleList((ModernBlock if n else FirstBlock)(settings) for n in range(settings.layers))
        self.last = _norm(settings)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                adds = name.endswith(("mix.weight", "down.weight"))
                _fresh(weight, deep(settings.initializer_std, settings.layers) if adds else settings.initializer_std)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

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
        options, head, new = self.settings, self.settings.width // self.settings.heads, tokens.shape[1]
        x = self.dropout(self.norm(self.words(tokens)))
        visible: Visible
        near: Visible
        if cache is not None:
            assert not isinstance(documents, Texts)
            visible = before = cache.visible(new, documents, tokens.device)
            near = cache.nearby(before, new, options.reach, tokens.device)
        else:
            visible = visibility(documents, causal=options.causal, rows=causal, blocks=self.blocks)
            near = nearby(visible, options.reach, tokens, causal=options.causal, blocks=self.blocks)
        whole = as_scores(visible), angles(positions, options.theta, head, options.rope_scaling, options.positions)
        local = as_scores(near), angles(positions, options.local_theta, head)
        for number, block in enumerate(self.blocks):
            seen, turn = local if options.local(number) else whole
            x = block(x, seen, turn=turn, cache=None if cache is None else cache.layers[number])
        output: Tensor = self.last(x)
        return output


class ModernBlock(Block):
    """Norm, attention, add; norm, gated feed-forward, add.

    `forward` fuses sums, dropout and norms if a kernel supports it, and computes:

        x = x + dropout(attention(norm(x)))
        gated, gate = up(norm(x))
        x = x + down(dropout(activation(gated) * gate))
    """

    tensor_plan: ClassVar[dict[str, str]] = {**TRANSFORMER_PLAN, "inner_dropout": "split"}
    attention_norm: nn.Module

    def __init__(self, settings: ModernBert) -> None:
        super().__init__()
        width = settings.width
        self.attention_norm = _norm(settings)
        self.attention = SelfAttention(
            width, settings.heads, settings.attention_dropout, causal=settings.causal, bias=settings.attention_bias
        )
        self.norm = _norm(settings)
        self.up = nn.Linear(width, 2 * settings.inner, bias=settings.inner_bias)
        self.down = nn.Linear(settings.inner, width, bias=settings.inner_bias)
        self.attention_dropout, self.inner_dropout = Dropout(settings.dropout), Dropout(settings.inner_dropout)
        self.run, self.activation = settings.inner // settings.runs, ACTIVATIONS[settings.activation]

    def forward(
        self, x: Tensor, visible: Visible, *, turn: tuple[Tensor, Tensor], cache: KeyValueCache | None = None
    ) -> Tensor:
        x, read = and_norm(x, self.attention_norm)
        first = Sum(x, self.attention.mix, self.attention_dropout, self.norm, self.attention)
        x, read = first.and_norm(self.attention(read, visible, turn=turn, cache=cache, mix=first.product))
        gated, gate = self.up(read).unflatten(-1, (-1, 2, self.run)).unbind(-2)  # the number of pairs is local
        change: Tensor = self.down(self.inner_dropout((self.activation(gated) * gate).flatten(-2)))
        return x + change


class FirstBlock(ModernBlock):
    """The first block, without a norm before attention, because the embeddings are normalized."""

    tensor_plan: ClassVar[dict[str, str]] = {k: v for k, v in ModernBlock.tensor_plan.items() if k != "attention_norm"}

    def __init__(self, settings: ModernBert) -> None:
        super().__init__(settings)
        self.attention_norm = nn.Identity()


class ModernHead(TokenHead):
    def __init__(self, settings: ModernBert, model: Model) -> None:
        super().__init__()
        self.words = scored_words(model, settings.initializer_std, tied=settings.tied)
        self.dense = nn.Linear(settings.width, settings.width, bias=settings.head_bias)
        self.norm, self.activation = _norm(settings), ACTIVATIONS[settings.head_activation]
        self.bias = nn.Parameter(torch.zeros(model.words.num_embeddings)) if settings.word_bias else None
        if self.dense.bias is not None:
            nn.init.zeros_(self.dense.bias)
        _fresh(self.dense.weight, deep(settings.initializer_std, settings.layers))
        if not settings.tied:
            _fresh(self.words.weight, settings.initializer_std)

    def transform(self, hidden: Tensor) -> Tensor:
        output: Tensor = self.norm(self.activation(self.dense(hidden)))
        return output


class Activated(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[name]

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(x)


def _norm(settings: ModernBert) -> nn.LayerNorm:
    return nn.LayerNorm(settings.width, settings.epsilon, bias=settings.norm_bias)


def _fresh(weight: Tensor, std: float) -> None:
    """Initialize with a normal distribution truncated at two standard deviations.

    torch's `trunc_normal_` is not used because its results differ between versions.
    """
    if weight.is_meta:
        return
    with torch.no_grad():
        edge = weight.new_tensor(2 * std, device="cpu").item()
        weight.normal_(0.0, std)
        while (beyond := weight.abs() > edge).any():
            weight.copy_(torch.where(beyond, torch.empty_like(weight).normal_(0.0, std), weight))
