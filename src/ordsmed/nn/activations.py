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
# Hugging Face's name -> name in ACTIVATIONS; exports write the first of several names with the same meaning
HUGGING_FACE = {
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


def activated(layer: nn.Linear, activation: Activation, x: Tensor) -> Tensor:
    """Return `activation(layer(x))`; packed layers and the Triton kernel for GELU fuse the two."""
    packed = vars(layer).get("forward")
    if isinstance(packed, PackedLayer) and activation in PACKED:
        return packed(x, *PACKED[activation])
    if switch.runs("gelu", x.device) and activation in GELUS and is_plain(layer) and not torch.compiler.is_compiling():
        from ordsmed.nn.kernels.gelu import linear_gelu  # needs Triton, which `switch` has checked

        return linear_gelu(x, layer.weight, layer.bias, tanh=activation is ACTIVATIONS["gelu_tanh"])
    return activation(layer(x))


def is_plain(layer: nn.Module) -> bool:
    """Return whether `layer` is an unmodified nn.Linear: a trainable bias, no hooks, and an unsharded weight."""
    if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer):
        return False
    return layer.bias is not None and layer.bias.requires_grad and not is_sharded(layer.weight)


def from_config(config: dict[str, Any], key: str, default: str) -> str:
    """Return the name in ACTIVATIONS for the activation of a config.json; raise an error if it is unknown."""
    expect(config, **{key: tuple(HUGGING_FACE)})
    return HUGGING_FACE[config.get(key, default)]


def hugging_face_name(name: str) -> str:
    return next(key for key, value in HUGGING_FACE.items() if value == name)
