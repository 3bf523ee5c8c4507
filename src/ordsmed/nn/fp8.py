"""Linear layers whose three products are computed in 8 bits: forward e4m3 x e4m3, backward e5m2 x e4m3.

Each tensor is scaled by its current absolute maximum, so scaling has no state and does not synchronize the GPU. Sums
have fp32 accuracy; weights and their gradients are fp32. For tests, a CPU computes products of the same 8-bit numbers
in fp32.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ordsmed.nn.context import Context

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # divides every dimension of a product, as the hardware requires


class Fp8Linear(nn.Linear):
    """A linear layer that multiplies in 8 bits under autocast, and as nn.Linear otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        dtype = torch.get_autocast_dtype(x.device.type)
        flat = x.reshape(-1, self.in_features)
        product: Tensor = _Fp8Product.apply(flat, self.weight, dtype)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            product = product + self.bias.to(dtype)
        return product.view(*x.shape[:-1], self.out_features)


def use_fp8(block: nn.Module) -> int:
    """Convert the linear layers of a block whose sizes allow 8-bit products; return their number."""
    layers = [layer for layer in block.modules() if type(layer) is nn.Linear]
    fit = [layer for layer in layers if layer.in_features % MULTIPLE == layer.out_features % MULTIPLE == 0]
    for layer in fit:
        layer.__class__ = Fp8Linear
    return len(fit)


class _Fp8Product(torch.autograd.Function):
    """x @ weight.T; the backward pass uses the saved 8-bit numbers."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        small_x, scale_x = _scaled(x, FORWARD)
        small_w, scale_w = _scaled(weight, FORWARD)
        ctx.save_for_backward(small_x, scale_x, small_w, scale_w)
        ctx.types = x.dtype, weight.dtype, dtype
        return _product(small_x, small_w.t(), scale_x, scale_w, dtype)

    @staticmethod
    def backward(ctx: Context, gradients: Tensor) -> tuple[Tensor | None, ...]:
        small_x, scale_x, small_w, scale_w = ctx.saved_tensors
        type_x, type_w, dtype = ctx.types
        small, scale = _scaled(gradients, BACKWARD)
        to_x = to_w = None
        if ctx.needs_input_grad[0]:
            to_x = _product(small, _by_column(small_w), scale, scale_w, dtype).to(type_x)
        if ctx.needs_input_grad[1]:
            small, small_x = _padded(small), _padded(small_x)
            to_w = _product(small.t().contiguous(), _by_column(small_x), scale, scale_x, torch.float32).to(type_w)
        return to_x, to_w, None


def _scaled(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return x in 8 bits and the scale by which it was divided, so that its maximum is the largest number."""
    largest = x.detach().abs().amax().float().clamp(min=1e-30)
    scale = largest / torch.finfo(kind).max
    return (x.float() / scale).to(kind).contiguous(), scale


def _by_column(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def _padded(x: Tensor) -> Tensor:
    """Append rows of zeros up to a multiple of MULTIPLE; they add nothing to sums over rows."""
    more = -len(x) % MULTIPLE
    return F.pad(x.view(torch.uint8), (0, 0, 0, more)).view(x.dtype) if more else x


def _product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, dtype: torch.dtype) -> Tensor:
    if a.device.type == "cpu":  # torch's CPU implementation is correct but takes minutes
        with torch.autocast("cpu", enabled=False):
            return (a.float() @ b.float() * (scale_a * scale_b)).to(dtype)
    return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype)
