"""Activation functions by name, and the names that Hugging Face's config.json uses for them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.config import expect
from ordsmed.nn.kernels import switch
from ordsmed.nn.packed_layers import PackedLayer
from ordsmed.nn.shards import is_sharded

Activation = Callable[[Tensor], Tensor]


def quick_gelu(x: Tensor) -> Tensor:
    """Approximate GELU by `x * sigmoid(1.702 x)`."""
    return x * torch.sigmoid(1.702 * x)


def relu2(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Activation] = {
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": F.relu,
    "relu2": relu2,
    "silu": F.silu,
    "tanh": torch.tanh,
}
GELUS = (ACTIVATIONS["gelu"], ACTIVATIONS["gelu_tanh"])
PACKED = dict(zip(GELUS, (("gelu", "none"), ("gelu", "tanh")), strict=True))  # arguments of the packed kernels
# Hugging Face's name -> the project's name; exports write the first of several names with the same meaning
THEIRS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def bent(layer: nn.Linear, activation: Activation, x: Tensor) -> Tensor:
    """Return `activation(layer(x))`.

    A packed layer computes GELU inside its product. Where the project's GELU kernel is switched on, it computes GELU
    and its backward pass.
    """
    packed = vars(layer).get("forward")
    if isinstance(packed, PackedLayer) and activation in PACKED:
        return packed(x, *PACKED[activation])
    if switch.runs("gelu", x.device) and activation in GELUS and is_plain(layer) and not torch.compiler.is_compiling():
        from ordsmed.nn.kernels.gelu import linear_gelu  # needs Triton, which is installed if the kernel is on

        return linear_gelu(x, layer.weight, layer.bias, tanh=activation is ACTIVATIONS["gelu_tanh"])
    return activation(layer(x))


def is_plain(layer: nn.Module) -> bool:
    """Return whether `layer` is an unmodified nn.Linear: a trainable bias, no hooks, and an unsharded weight."""
    if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    return layer.bias is not None and layer.bias.requires_grad and not is_sharded(layer.weight)


def ours(config: dict[str, Any], key: str, usual: str) -> str:
    expect(config, **{key: tuple(THEIRS)})
    return THEIRS[config.get(key, usual)]


def theirs(name: str) -> str:
    return next(there for there, here in THEIRS.items() if here == name)
