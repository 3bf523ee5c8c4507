"""fp32 products on a CPU by oneDNN, if torch's default library uses only half of the vector width.

torch calls MKL, which on AMD's CPUs uses 256-bit vectors; Zen 5 is twice as fast with 512 bits. oneDNN's kernels use
these, by the operator that torch's compiler calls. On other CPUs, devices and data types torch's own products run.
"""

import types

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ordsmed.base.machine.speed import wider_by_onednn
from ordsmed.nn.context import Context
from ordsmed.nn.shards import is_sharded

STEP = 16  # numbers of rows are rounded up to multiples: each new number compiles a kernel (0.5 ms)
MAX_COPIED = 512  # rows up to which copying to the rounded size is faster than compiling a kernel

_choice = "auto"


def begin(choice: str) -> str:
    """Choose the library, "auto" or "plain" (torch's); return a line for the log, or "" for torch's."""
    global _choice
    _choice = choice
    faster = choice == "auto" and wider_by_onednn()
    return "products: oneDNN's (MKL uses half of this CPU's vector width)" if faster else ""


def by_onednn(*factors: Tensor) -> bool:
    """Return whether oneDNN multiplies these factors."""
    if torch.compiler.is_compiling() or _choice != "auto" or not wider_by_onednn() or torch.is_autocast_enabled("cpu"):
        return False
    return all(
        factor.dtype == torch.float32 and factor.device.type == "cpu" and factor.numel() > 0 for factor in factors
    ) and not any(map(is_sharded, factors))


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias by oneDNN, without gradients; `by_onednn` must hold for the factors."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def rounded(rows: int) -> int:
    return rows if rows <= STEP else -(-rows // STEP) * STEP


def even(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x [N, in] in `dtype`, with rows of zeros up to `rounded(N)`."""
    if rounded(len(x)) == len(x):
        return x.to(dtype)
    out = x.new_zeros(rounded(len(x)), x.shape[1], dtype=dtype)
    out[: len(x)] = x
    return out


def across(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a weight, gradient.T @ x: [N, out] and [N, in] -> [out, in].

    The narrower factor is the one that is transposed in memory.
    """
    if not by_onednn(gradient, x):
        return gradient.T @ x
    return times(x.T, gradient.T).T.contiguous() if gradient.shape[1] > x.shape[1] else times(gradient.T, x.T)


def product(x: Tensor, weight: Tensor) -> Tensor:
    return times(x, weight.T) if by_onednn(x, weight) else x @ weight


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return times(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = ctx.needs_input_grad
        flat = gradient.reshape(-1, gradient.shape[-1])
        of_x = times(gradient, weight.T) if to_x else None
        of_weight = across(flat, x.reshape(-1, x.shape[-1])) if to_weight else None
        return of_x, of_weight, flat.sum(0) if to_bias else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not by_onednn(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():  # inference: lengths of texts differ
        flat = x.reshape(-1, x.shape[-1])
        rows = even(flat, x.dtype) if len(flat) <= MAX_COPIED else flat
        return times(rows, weight, bias)[: len(flat)].view(*x.shape[:-1], len(weight))
    out: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out


def take(network: nn.Module) -> None:
    """Make the linear layers of a network use the faster library."""
    if not wider_by_onednn():
        return
    for layer in network.modules():
        if type(layer) is nn.Linear and "forward" not in vars(layer):
            layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]


def _forward(self: nn.Linear, x: Tensor) -> Tensor:
    return linear(x, self.weight, self.bias)
