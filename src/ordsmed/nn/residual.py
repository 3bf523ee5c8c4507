"""Residual sums of blocks and the norms next to them, by torch's operations or by one kernel if it is switched on.

    x, layer, dropout, norm -> norm(x + dropout(layer(...))) in post-norm blocks, else the sum and its norm

A norm that is used twice is returned twice, so that the kernel adds up the gradients of both uses.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.activations import is_plain
from ordsmed.nn.dropout import Dropout
from ordsmed.nn.kernels import switch
from ordsmed.nn.shards import is_sharded

WIDEST = 4_096  # largest width that the kernel supports


def exact_norm(self: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute a LayerNorm in fp32 for inputs of any type."""
    with torch.autocast(x.device.type, enabled=False):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)


def half_norm(self: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute a LayerNorm with 16-bit input and output under autocast; the kernel sums up in fp32."""
    if not torch.is_autocast_enabled(x.device.type):
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
    dtype = torch.get_autocast_dtype(x.device.type)
    with torch.autocast(x.device.type, enabled=False):
        bias = None if self.bias is None else self.bias.to(dtype)
        return F.layer_norm(x.to(dtype), self.normalized_shape, self.weight.to(dtype), bias, self.eps)


class Sum:
    """The sum of a residual stream and a layer's output, with dropout, optionally before or after a norm."""

    def __init__(
        self, x: Tensor, layer: nn.Linear, dropout: Dropout, norm: nn.Module | None = None, *among: nn.Module
    ) -> None:
        """`among`: modules around the layer; if one has hooks, the kernel does not compute the bias gradient."""
        self.x, self.dropout, self.norm, self.layer = x, dropout, norm, layer
        drops = dropout.rate > 0 and dropout.training
        supported = drops if norm is None else _kind(norm, x) is not None
        self.by_kernel = supported and _runs(x) and _without_hooks(dropout)
        has_bias = self.by_kernel and is_plain(layer) and all(map(_without_hooks, among))
        self.bias = layer.bias if has_bias else None  # whose gradient the kernel computes

    def product(self, inputs: Tensor) -> Tensor:
        """Return the layer's output; the gradient of its bias is left to the kernel, if it runs."""
        if self.bias is None:
            out: Tensor = self.layer(inputs)
            return out
        return F.linear(inputs, self.layer.weight, self.bias.detach())

    def alone(self, added: Tensor) -> Tensor:
        if not self.by_kernel:
            return self.dropout.add(added, self.x)
        from ordsmed.nn.kernels import residual_norm  # needs Triton, which `switch` has checked

        return residual_norm.add(added, self.x, self.bias, self.dropout.drop())

    def and_norm(self, added: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + dropout(added), and its norm."""
        if self.by_kernel:
            return self._fused(added, after=False)
        x = self.dropout.add(added, self.x)
        return x, self.norm(x)  # type: ignore[misc]

    def normed(self, added: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norm of x + dropout(added), twice."""
        if self.by_kernel:
            return self._fused(added, after=True)
        x = self.norm(self.dropout.add(added, self.x))  # type: ignore[misc]
        return x, x

    def _fused(self, added: Tensor, *, after: bool) -> tuple[Tensor, Tensor]:
        from ordsmed.nn.kernels import residual_norm

        norm, kind = self.norm, _kind(self.norm, self.x, added)
        assert isinstance(norm, nn.LayerNorm)
        assert kind is not None
        return residual_norm.add_norm(
            added, self.x, norm.weight, norm.bias, norm.eps, kind, bias=self.bias, drop=self.dropout.drop(), after=after
        )


def and_norm(x: Tensor, norm: nn.Module) -> tuple[Tensor, Tensor]:
    kind = _kind(norm, x) if _runs(x) else None
    if kind is None:
        return x, norm(x)
    from ordsmed.nn.kernels import residual_norm

    assert isinstance(norm, nn.LayerNorm)
    return residual_norm.add_norm(None, x, norm.weight, norm.bias, norm.eps, kind)


def _runs(x: Tensor) -> bool:
    """Return whether the kernel is used for rows of this width; compiled blocks are fused by the compiler."""
    return switch.runs("residual_norm", x.device) and x.shape[-1] <= WIDEST and not torch.compiler.is_compiling()


def _kind(norm: nn.Module | None, x: Tensor, added: Tensor | None = None) -> torch.dtype | None:
    """Return the data type of a norm's output; None if it is not a plain, unsharded LayerNorm without hooks."""
    if type(norm) is not nn.LayerNorm or not _without_hooks(norm) or norm.weight is None or is_sharded(norm.weight):
        return None
    forward, half = getattr(vars(norm).get("forward"), "__func__", None), torch.is_autocast_enabled(x.device.type)
    if forward is exact_norm:
        return torch.float32
    if forward is half_norm and half:
        return torch.get_autocast_dtype(x.device.type)
    if half or ("forward" in vars(norm) and forward is not half_norm):
        return None
    return x.dtype if added is None else torch.promote_types(x.dtype, added.dtype)


def _without_hooks(module: nn.Module) -> bool:
    return not (module._forward_hooks or module._forward_pre_hooks)
