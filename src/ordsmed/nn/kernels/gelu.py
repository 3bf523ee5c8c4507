"""GELU's backward pass with the gradient of the bias before it, which saves one pass over the widest tensors.

    z [N, C] = x @ weight.T + bias -> gelu(z)        gradients of gelu(z), z -> gradients of z, of bias

torch reads the gradient of z again to sum up that of the bias. Sums have a fixed order: rows of a group, then groups.
"""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.nn.context import Context
from ordsmed.nn.kernels.ops import define
from ordsmed.nn.kernels.trial import Shapes, close, in_fp32, random_tensor

ROWS, STEP, COLUMNS = 128, 8, 128  # rows of a program, rows it processes at a time, and its columns


@triton.jit
def _back(
    gradients: Value,
    inputs: Value,
    out: Value,
    sums: Value,
    rows: Value,
    width: Value,
    TANH: tl.constexpr,
    SIZE: tl.constexpr,
    LINES: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    group, column = tl.program_id(0), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((LINES, WIDE), tl.float32)
    for first in range(0, SIZE, LINES):
        row = group * SIZE + first + tl.arange(0, LINES)
        at, here = (
            row.to(tl.int64)[:, None] * width + column[None, :],
            (row < rows)[:, None] & (column < width)[None, :],
        )
        x, gradient = tl.load(inputs + at, here, 0).to(tl.float32), tl.load(gradients + at, here, 0).to(tl.float32)
        if TANH:
            activated = 2 * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)) - 1
            derivative = 0.7978845608028654 * (1 + 0.134145 * x * x)
            gradient *= 0.5 * (1 + activated) + 0.5 * x * (1 - activated * activated) * derivative
        else:
            gradient *= 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * tl.exp(-0.5 * x * x) * 0.3989422804014327
        tl.store(out + at, gradient.to(out.dtype.element_ty), here)
        total += gradient
    tl.store(sums + group.to(tl.int64) * width + column, tl.sum(total, 0), column < width)


def _launch(gradients: Tensor, inputs: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    assert gradients.is_contiguous(), "gradients must be contiguous"
    assert inputs.is_contiguous(), "inputs must be contiguous"
    out, sums = _outputs(gradients, inputs, tanh)
    rows, width = inputs.shape
    if inputs.numel():
        grid = (len(sums), triton.cdiv(width, COLUMNS))
        _back[grid](gradients, inputs, out, sums, rows, width, tanh, ROWS, STEP, COLUMNS)
    return out, sums


def _outputs(gradients: Tensor, inputs: Tensor, tanh: bool) -> tuple[Tensor, Tensor]:
    groups = -(-len(inputs) // ROWS)
    return torch.empty_like(inputs), torch.empty(groups, inputs.shape[1], dtype=torch.float32, device=inputs.device)


_op = define("gelu_backward(Tensor gradients, Tensor inputs, bool tanh) -> (Tensor, Tensor)", _launch, _outputs)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, z: Tensor, bias: Tensor, tanh: bool) -> Tensor:
        ctx.save_for_backward(z)
        ctx.tanh, ctx.kind = tanh, bias.dtype
        return F.gelu(z, approximate="tanh" if tanh else "none")

    @staticmethod
    def backward(ctx: Context, gradients: Tensor) -> tuple[Tensor | None, ...]:
        (z,) = ctx.saved_tensors
        flat = z.flatten(0, -2)
        to_z, sums = _op(gradients.to(z.dtype).reshape(flat.shape).contiguous(), flat, ctx.tanh)
        return to_z.view_as(z), sums.sum(0).to(ctx.kind), None


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, *, tanh: bool) -> Tensor:
    activated: Tensor = _Gelu.apply(F.linear(x, weight, bias.detach()), bias, tanh)  # type: ignore[no-untyped-call]
    return activated


def plain(x: Tensor, weight: Tensor, bias: Tensor, *, tanh: bool) -> Tensor:
    return F.gelu(F.linear(x, weight, bias), approximate="tanh" if tanh else "none")


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare the kernel's gradients with torch's on a few rows; return the difference in words, or an empty string."""
    noise = torch.Generator().manual_seed(0)
    for width, tanh in itertools.product(shapes.inner, (False, True)):
        z, bias = random_tensor(noise, (ROWS + 2, width), device, shapes.dtype), random_tensor(noise, (width,), device)
        above = torch.randn(z.shape, generator=noise).to(device, shapes.dtype)
        learned = torch.autograd.grad(_Gelu.apply(z, bias, tanh), (z, bias), above)  # type: ignore[no-untyped-call]
        whole, gradient = in_fp32(z)[0], above.float()
        (to_z,) = torch.autograd.grad(F.gelu(whole, approximate="tanh" if tanh else "none"), whole, gradient)
        if not close(learned, [to_z, to_z.sum(0)], shapes.dtype):
            return "other gradients than torch's"
    return ""


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for tanh in (False, True):
            z = torch.zeros(2, 3_072, dtype=dtype, device=device)
            _launch(z, z, tanh)
