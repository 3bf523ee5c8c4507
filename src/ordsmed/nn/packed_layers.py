"""Packed layers: linear layers for inference whose weights are stored once in the layout of a CPU's kernels.

Weights are in bf16 or in 8 bits. In 8 bits, weights have one scale per output and inputs one scale and zero point; sums
are exact and results are fp32. A supported activation is fused into the product. The kernels are oneDNN's, called by
the operators that torch's compiler uses; they have no backward pass.
"""

import contextlib
import math
import platform
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ordsmed.nn.model import Block
from ordsmed.nn.products import even, rounded

ROWS = 256  # number of rows that the layout of bf16 weights is optimized for; others work as well
CACHED = 1 << 17  # numbers that fit into a core's cache while they are cast
LEVELS = 254  # steps between the minimum and maximum of the inputs; one level is left for the zero point
Kind = Literal["bf16", "int8"]


class PackedLayer:
    """The product of a linear layer; its weights are packed at the first call."""

    def __init__(self, layer: nn.Linear) -> None:
        self.weight, self.bias = layer.weight.detach(), None if layer.bias is None else layer.bias.detach()
        self.packed: Tensor | None = None

    def __call__(self, x: Tensor, post: str = "none", how: str = "") -> Tensor:
        """Apply the layer to x [..., in]; return [..., out].

        `post` and `how` are oneDNN's name and algorithm of an activation to fuse into the product, such as "gelu" and
        "tanh". With `post="none"`, no activation is applied.
        """
        if self.packed is None:
            self.packed = self._pack()
        flat = x.reshape(-1, x.shape[-1])
        out = self._product(flat, self.packed, post, how) if len(flat) else x.new_empty(0, len(self.weight))
        return out[: len(flat)].view(*x.shape[:-1], len(self.weight))

    def _pack(self) -> Tensor:
        raise NotImplementedError

    def _product(self, x: Tensor, packed: Tensor, post: str, how: str) -> Tensor:
        raise NotImplementedError


class HalfLayer(PackedLayer):
    def _pack(self) -> Tensor:
        self.bias = None if self.bias is None else self.bias.to(torch.bfloat16)
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self.weight.to(torch.bfloat16), ROWS)
        return packed

    def _product(self, x: Tensor, packed: Tensor, post: str, how: str) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(even(x, torch.bfloat16), packed, self.bias, post, [], how)
        return out


class Int8Layer(PackedLayer):
    def _pack(self) -> Tensor:
        whole = self.weight.float()
        self.scales = whole.abs().amax(1).clamp(min=1e-30) / 127
        self.zeros = torch.zeros(len(whole), dtype=torch.int64)
        small = (whole / self.scales[:, None]).round().to(torch.int8)
        packed: Tensor = torch.ops.onednn.qlinear_prepack(small, None)
        return packed

    def _product(self, x: Tensor, packed: Tensor, post: str, how: str) -> Tensor:
        small, scale, zero = quantized(x.float())
        if not math.isfinite(scale):  # NaN and infinity give NaN
            return x.new_full((len(x), len(self.weight)), math.nan, dtype=torch.float32)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            small, scale, zero, packed, self.scales, self.zeros, self.bias, 1.0, 0, torch.float32, post, [], how
        )
        return out


KINDS: dict[Kind, type[PackedLayer]] = {"bf16": HalfLayer, "int8": Int8Layer}


def quantized(x: Tensor) -> tuple[Tensor, float, int]:
    """Return x [M, K] as uint8 with M rounded up, its scale and zero point: x = (small - zero) * scale."""
    low, high = (side.item() for side in torch.aminmax(x))
    if not math.isfinite(high - low):
        return x.new_empty(0, dtype=torch.uint8), math.nan, 0
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / LEVELS, 1e-30)
    zero = round(-low / scale)
    small = torch.zeros(rounded(len(x)), x.shape[1], dtype=torch.int8)
    # torch casts to int8 twice as fast as to uint8: cast with an offset of -128, then flip the sign bit
    shift, size = torch.tensor(zero - 128.0), max(1, CACHED * torch.get_num_threads() // x.shape[1])
    for part, out in zip(x.split(size), small[: len(x)].split(size), strict=True):
        out.copy_(torch.add(shift, part, alpha=1 / scale).round_())
    return small.view(torch.uint8).bitwise_xor_(128), scale, zero


def layers_of(network: nn.Module, kind: Kind) -> list[nn.Linear]:
    """Return the layers that can be packed; in 8 bits only those of the blocks, because heads need precision."""
    within = [network] if kind == "bf16" else [block for block in network.modules() if isinstance(block, Block)]
    return [layer for part in within for layer in part.modules() if type(layer) is nn.Linear]


class SmallWeights:
    """Packed 8-bit weights of a network's blocks; the network keeps its original weights."""

    def __init__(self) -> None:
        self._packed: list[tuple[nn.Linear, PackedLayer]] = []

    @contextlib.contextmanager
    def within(self, network: nn.Module) -> Iterator[None]:
        if not self._packed:
            self._packed = [(layer, Int8Layer(layer)) for layer in layers_of(network, "int8")]
        with installed(self._packed):
            yield


@contextlib.contextmanager
def installed(layers: Sequence[tuple[nn.Linear, PackedLayer]]) -> Iterator[None]:
    forwards = [vars(layer).pop("forward", None) for layer, _ in layers]
    try:
        for layer, packed in layers:
            vars(layer)["forward"] = packed
        yield
    finally:
        for (layer, _), forward in zip(layers, forwards, strict=True):
            del vars(layer)["forward"]
            if forward is not None:
                vars(layer)["forward"] = forward


def lacks_bf16(device: torch.device) -> bool:
    ops = torch.ops.mkldnn
    if device.type != "cpu" or not torch.backends.mkldnn.is_available() or not hasattr(ops, "_reorder_linear_weight"):
        return True
    return not (hasattr(ops, "_is_mkldnn_bf16_supported") and ops._is_mkldnn_bf16_supported())


def lacks_int8(device: torch.device) -> str:
    """Return why there is no fast and exact 8-bit product on this device; empty if there is one."""
    if device.type != "cpu":
        return f"is for CPUs, and the model is on {device.type}"
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return f"was not tested on {platform.machine()}"
    ops = torch.ops.onednn
    if not torch.backends.mkldnn.is_available() or not hasattr(ops, "qlinear_pointwise"):
        return f"torch {torch.__version__} has no products for"
    # without VNNI, sums of two products saturate at 16 bits
    large = torch.full((1, 64), 255, dtype=torch.uint8)
    packed = ops.qlinear_prepack(torch.full((16, 64), 127, dtype=torch.int8), None)
    ones, none = torch.ones(16), torch.zeros(16, dtype=torch.int64)
    sums = ops.qlinear_pointwise(large, 1.0, 0, packed, ones, none, None, 1.0, 0, torch.float32, "none", [], "")
    return "" if bool((sums == 64 * 255 * 127).all()) else "this CPU, without VNNI or AMX, does not multiply exactly"


class CastWeights:
    """The weights of a network's linear layers in 16 bits, for inference; autocast would cast them for every batch.

    Later changes of the weights have no effect. On a CPU in bf16 the weights are packed; otherwise results are bitwise
    those of autocast.
    """

    def __init__(self) -> None:
        self._for: tuple[torch.device, torch.dtype] | None = None
        self._casts: list[tuple[nn.Linear, str, Tensor, Tensor]] = []
        self._packed: list[tuple[nn.Linear, PackedLayer]] = []

    @contextlib.contextmanager
    def within(self, network: nn.Module, device: torch.device, dtype: torch.dtype) -> Iterator[None]:
        if self._for != (device, dtype):
            self._for, self._casts, self._packed = (device, dtype), [], []
            if dtype == torch.bfloat16 and not lacks_bf16(device):
                self._packed = [(layer, HalfLayer(layer)) for layer in layers_of(network, "bf16")]
            else:
                self._casts = _cast(network, dtype)
        with torch.autocast(device.type, dtype), installed(self._packed):
            try:
                for layer, name, _, half in self._casts:
                    layer._parameters[name] = half  # type: ignore[assignment]
                yield
            finally:
                for layer, name, weight, _ in self._casts:
                    layer._parameters[name] = weight  # type: ignore[assignment]


def _cast(network: nn.Module, dtype: torch.dtype) -> list[tuple[nn.Linear, str, Tensor, Tensor]]:
    return [
        (layer, name, weight, weight.detach().to(dtype))
        for layer in network.modules()
        if type(layer) is nn.Linear
        for name, weight in layer._parameters.items()
        if weight is not None
    ]
