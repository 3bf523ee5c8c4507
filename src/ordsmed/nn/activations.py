"""Activations by their names, ours and those in Hugging Face's config.json."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.config import expect
from ordsmed.nn.kernels import switch
from ordsmed.nn.packed import PackedLayer
from ordsmed.nn.shards import is_sharded

Activation = Callable[[Tensor], Tensor]


def quick_gelu(x: Tensor) -> Tensor:
    """GELU by a sigmoid."""
    return x * torch.sigmoid(1.702 * x)


def relu2(x: Tensor) -> Tensor:
    """ReLU, squared."""
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu, "gelu_tanh": functools.partial(F.gelu, approximate="tanh"), "quick_gelu": quick_gelu,
    "relu": F.relu, "relu2": relu2, "silu": F.silu, "tanh": torch.tanh,
}  # fmt: skip
GELUS = (ACTIVATIONS["gelu"], ACTIVATIONS["gelu_tanh"])
PACKED = dict(zip(GELUS, (("gelu", "none"), ("gelu", "tanh")), strict=True))  # as kernels of packed layers name them
# theirs -> ours; the first of those that mean the same is what is written
THEIRS = {
    "gelu": "gelu", "gelu_python": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu", "tanh": "tanh",
}  # fmt: skip


def bent(layer: nn.Linear, activation: Activation, x: Tensor) -> Tensor:
    """`activation(layer(x))`; GELU learns by a kernel of ours where those run, and is part of a packed product."""
    packed = vars(layer).get("forward")
    if isinstance(packed, PackedLayer) and activation in PACKED:
        return packed(x, *PACKED[activation])
    if switch.runs("gelu", x.device) and activation in GELUS and is_plain(layer) and not torch.compiler.is_compiling():
        from ordsmed.nn.kernels.gelu import linear_gelu  # Triton's: where it is switched on it is there

        return linear_gelu(x, layer.weight, layer.bias, tanh=activation is ACTIVATIONS["gelu_tanh"])
    return activation(layer(x))


def is_plain(layer: nn.Module) -> bool:
    """Is it one product with a bias that learns, of this rank alone, at which nobody looks?"""
    if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    return layer.bias is not None and layer.bias.requires_grad and not is_sharded(layer.weight)


def ours(config: dict[str, Any], key: str, usual: str) -> str:
    """Our name of the activation that a config.json asks for."""
    expect(config, **{key: tuple(THEIRS)})
    return THEIRS[config.get(key, usual)]


def theirs(name: str) -> str:
    """Their name of one of our activations."""
    return next(there for there, here in THEIRS.items() if here == name)
