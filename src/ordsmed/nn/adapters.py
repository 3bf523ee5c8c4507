"""Adapters (LoRA, Hu et al. 2021): low-rank changes to some layers of a frozen network.

    x [..., I] --> weight [O, I], bias ----------------------> + --> [..., O]
           '-----> dropout --> down [r, I] --> up [O, r] * scale

Only adapters and heads have gradients and optimizer moments. `up` starts at 0, so the adapted network starts as the
original one.

Query, key and value are one layer, `gather`, whose rows are ordered by head, [H, 3, d]. Its adapter has one `down` for
all three, which therefore share the same r features of a token, and one `up` with rows in the same order.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.nn import products
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.lstm import Lstm
from ordsmed.nn.model import Block


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters (LoRA) in a frozen network; heads are trained as usual."""

    rank: int = 8
    """rank of the adapters; elsewhere lora_r"""
    scale: float = 2.0
    """factor of the adapters' output (alpha / rank); elsewhere lora_alpha"""
    dropout: float = 0.0
    """dropout of the adapters' input"""
    on: tuple[str, ...] = ("gather", "mix")
    """layers of each block that get adapters: gather (query, key and value), mix, up, down; elsewhere target_modules"""
    learn: str = ""
    """weights of the network that are trained in full, as a regular expression (norm|bias); empty: none"""

    def __post_init__(self) -> None:
        or_more(self, rank=1)
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale: found {self.scale}; wanted above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: found {self.dropout}; wanted 0 to below 1")
        if not self.on:
            raise ValueError("on: found nothing; wanted names of layers: gather, mix, up, down")
        try:
            re.compile(self.learn)
        except re.error as error:
            raise ValueError(f"learn: found {self.learn}, {error}; wanted a regular expression") from None


class Adapted(nn.Module):
    """A linear layer with an adapter; its weight and bias keep their names.

    It does not derive from nn.Linear, so torch refuses to split it over tensor-parallel ranks: how to shard
    `adapter_down` and `adapter_up` is not defined.
    """

    def __init__(self, layer: nn.Linear, adapters: Adapters) -> None:
        super().__init__()
        self.weight, self.bias, self.scale = layer.weight, layer.bias, adapters.scale
        self.adapter_down = nn.Parameter(layer.weight.new_empty(adapters.rank, layer.in_features))
        self.adapter_up = nn.Parameter(layer.weight.new_zeros(layer.out_features, adapters.rank))
        self.dropout = Dropout(adapters.dropout)
        # as in the reference implementation, so that published learning rates apply
        nn.init.kaiming_uniform_(self.adapter_down, a=math.sqrt(5))
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(self.dropout(x), self.adapter_down) * self.scale, self.adapter_up)
        return products.linear(x, self.weight, self.bias) + change


def put_in(model: nn.Module, adapters: Adapters) -> int:
    """Replace the layers named in `adapters.on` by adapted ones and freeze the other weights; return their number.

    Call it after the weights are loaded, and before dropout layers are numbered, blocks are sharded and parameters are
    grouped.
    """
    layers = [
        (parent, name, layer)
        for block in model.modules()
        if isinstance(block, Block)
        for parent in block.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear)
    ]
    _check(model, adapters, {name for _, name, _ in layers})
    for name, weight in model.named_parameters():
        weight.requires_grad_(_learns(name, adapters))
    chosen = [layer for layer in layers if layer[1] in adapters.on]
    for parent, name, layer in chosen:
        setattr(parent, name, Adapted(layer, adapters))
    return len(chosen)


def _check(model: nn.Module, adapters: Adapters, names: set[str]) -> None:
    if any(isinstance(module, Lstm) for module in model.modules()):
        problem = "found a network of LSTMs (ELMo), which does not support adapters"
        raise RecipeError("adapters", problem, "a Transformer", "leave adapters out")
    for name in adapters.on:
        if name not in names:
            raise RecipeError("adapters.on", f"found {name}", f"layers of the blocks: {', '.join(sorted(names))}")
    if adapters.learn and not any(_learns(name, adapters) for name, _ in model.named_parameters()):
        some = ", ".join(f"model.{name}" for name, _ in list(model.named_parameters())[:4])
        raise RecipeError(
            "adapters.learn",
            f"found {adapters.learn}, which matches no weight",
            f"an expression for names such as {some}",
        )


def _learns(name: str, adapters: Adapters) -> bool:
    """Return whether a weight is trained in full; `adapters.learn` is matched against the optimizer's names."""
    return bool(adapters.learn and re.search(adapters.learn, f"model.{name}"))


@torch.no_grad()
def merged(tensors: Mapping[str, Tensor], adapters: Adapters) -> dict[str, Tensor]:
    """Return the full (unsharded) tensors of an adapted network with every adapter added to its weight."""
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith((".adapter_down", ".adapter_up"))}
    for name, up in tensors.items():
        layer, _, end = name.rpartition(".")
        if end == "adapter_up":
            down, weight = tensors[f"{layer}.adapter_down"], plain[f"{layer}.weight"]
            plain[f"{layer}.weight"] = torch.addmm(weight, up, down, alpha=adapters.scale)
    return plain
