"""Adapters (LoRA, Hu et al. 2021): the network stays as it is, and some of its layers learn a change of low rank.

    x [..., I] --> weight [O, I], bias ----------------------> + --> [..., O]
           '-----> dropout --> down [r, I] --> up [O, r] * scale

Gradients and moments are then those of the adapters and heads alone. `up` begins as 0, so the network begins as it was.

Query, key and value are one layer of ours, `gather`, whose rows stand head by head, [H, 3, d]. Its adapter has one
down for all three, which therefore look at the same r numbers of a token, and rows of up for each, in the same order.
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
    """Low-rank adapters (LoRA) in a network that does not learn beside them; heads learn as ever."""

    rank: int = 8
    """rank of the adapters; elsewhere lora_r"""
    scale: float = 2.0
    """scale of what adapters add (alpha / rank); elsewhere lora_alpha"""
    dropout: float = 0.0
    """dropout of an adapter's input"""
    on: tuple[str, ...] = ("gather", "mix")
    """layers of every block with an adapter: gather (query, key and value), mix, up, down; elsewhere target_modules"""
    learn: str = ""
    """a regular expression: weights of the network that are trained in full (norm|bias); empty: none"""

    def __post_init__(self) -> None:
        or_more(self, rank=1)
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale: found {self.scale}; wanted above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: found {self.dropout}; wanted 0 to below 1")
        if not self.on:
            raise ValueError("on: found nothing; wanted names of layers, as gather, mix, up, down")
        try:
            re.compile(self.learn)
        except re.error as error:
            raise ValueError(f"learn: found {self.learn}, {error}; wanted a regular expression") from None


class Adapted(nn.Module):
    """A linear layer with an adapter; its own tensors keep their names.

    It is no nn.Linear, so that torch refuses to split it over tensor ranks: how down and up would lie is not settled.
    """

    def __init__(self, layer: nn.Linear, how: Adapters) -> None:
        super().__init__()
        self.weight, self.bias, self.scale = layer.weight, layer.bias, how.scale
        self.adapter_down = nn.Parameter(layer.weight.new_empty(how.rank, layer.in_features))
        self.adapter_up = nn.Parameter(layer.weight.new_zeros(layer.out_features, how.rank))
        self.dropout = Dropout(how.dropout)
        nn.init.kaiming_uniform_(self.adapter_down, a=math.sqrt(5))  # as the authors' code, so that known rates fit
        self.train(layer.training)

    def forward(self, x: Tensor) -> Tensor:
        change = F.linear(F.linear(self.dropout(x), self.adapter_down) * self.scale, self.adapter_up)
        return products.linear(x, self.weight, self.bias) + change


def put_in(model: nn.Module, how: Adapters) -> int:
    """Adapt layers of a network's blocks and freeze the rest of it; returns how many layers were adapted.

    After its weights were loaded, and before dropout layers are numbered, blocks split and parameters grouped.
    """
    layers = [
        (parent, name, layer)
        for block in model.modules()
        if isinstance(block, Block)
        for parent in block.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear)
    ]
    _check(model, how, {name for _, name, _ in layers})
    for name, weight in model.named_parameters():
        weight.requires_grad_(_learns(name, how))
    chosen = [layer for layer in layers if layer[1] in how.on]
    for parent, name, layer in chosen:
        setattr(parent, name, Adapted(layer, how))
    return len(chosen)


def _check(model: nn.Module, how: Adapters, names: set[str]) -> None:
    """Refuse what fits no layer or no weight."""
    if any(isinstance(module, Lstm) for module in model.modules()):
        problem = "found a network of LSTMs (ELMo), which have no layers that an adapter could stand beside"
        raise RecipeError("adapters", problem, "a Transformer", "leave adapters out")
    for name in how.on:
        if name not in names:
            raise RecipeError("adapters.on", f"found {name}", f"layers of the blocks: {', '.join(sorted(names))}")
    if how.learn and not any(_learns(name, how) for name, _ in model.named_parameters()):
        some = ", ".join(f"model.{name}" for name, _ in list(model.named_parameters())[:4])
        raise RecipeError("adapters.learn", f"found {how.learn}, which fits no weight", f"a part of names as {some}")


def _learns(name: str, how: Adapters) -> bool:
    """Does this weight learn in full? Its name is sought as the optimizer knows it."""
    return bool(how.learn and re.search(how.learn, f"model.{name}"))


@torch.no_grad()
def merged(tensors: Mapping[str, Tensor], how: Adapters) -> dict[str, Tensor]:
    """The tensors of an adapted network, whole ones by name, as those of the plain one that does the same."""
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith((".adapter_down", ".adapter_up"))}
    for name, up in tensors.items():
        layer, _, end = name.rpartition(".")
        if end == "adapter_up":
            down, weight = tensors[f"{layer}.adapter_down"], plain[f"{layer}.weight"]
            plain[f"{layer}.weight"] = torch.addmm(weight, up, down, alpha=how.scale)
    return plain
