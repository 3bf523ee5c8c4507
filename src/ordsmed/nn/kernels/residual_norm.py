"""Residual sum, dropout and norm in one pass forward and one pass backward.

    products, residuals [N, W] -> sums = residuals + dropout(products), normed = norm(sums)
    gradients of normed (two uses) and sums -> gradients of products, residuals, norm and the bias of the products

The dropout mask is made of noise bytes hashed from a key and each element's index. The backward pass makes it again, so
it is not stored. As on a CPU, the rate is rounded to 1/256, and kept elements are scaled by the actual keep rate.
Statistics are in fp32; sums over rows have a fixed order: rows of a group, then groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.base import chance
from ordsmed.nn.context import Context
from ordsmed.nn.dropout import Drop
from ordsmed.nn.kernels.noise import hashed
from ordsmed.nn.kernels.ops import define
from ordsmed.nn.kernels.trial import Shapes, close, in_fp32, random_tensor

GROUP = 16  # minimum rows of a group
KEEP = Drop()
WARPS = 8_192  # warps of all groups together, about the capacity of an H100; a quarter of them is a sixth slower


@triton.jit
def _mask(state: Value, row: Value, eighth: Value, within: Value, dropped: Value, EIGHTHS: tl.constexpr) -> Value:
    """Return the dropout factors; each 64-bit hash gives the bytes of eight neighbors."""
    bits = hashed(state, row.to(tl.int64) * EIGHTHS + eighth)
    byte = (bits[:, None] >> (within * 8).to(tl.int64)[None, :]) & 255
    return tl.where(byte.to(tl.int32) >= dropped, 256.0 / (256.0 - dropped), 0.0)


@triton.jit(do_not_specialize=["state", "dropped"])
def _forward(
    products: Value,
    residuals: Value,
    scale: Value,
    shift: Value,
    sums: Value,
    normed: Value,
    stats: Value,
    state: Value,
    dropped: Value,
    epsilon: Value,
    width: tl.constexpr,
    ADDS: tl.constexpr,
    DROPS: tl.constexpr,
    NORMS: tl.constexpr,
    SHIFTS: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    eighth, within = tl.arange(0, WIDE), tl.arange(0, 8)
    column = eighth[:, None] * 8 + within[None, :]
    here = column < width
    x = tl.load(residuals + row * width + column, here, 0).to(tl.float32)
    if ADDS:
        added = tl.load(products + row * width + column, here, 0).to(tl.float32)
        if DROPS:
            added *= _mask(state, row, eighth, within, dropped, (width + 7) // 8)
        kept = (x + added).to(sums.dtype.element_ty)
        tl.store(sums + row * width + column, kept, here)
        x = kept.to(tl.float32)
    if NORMS:
        mean = tl.sum(tl.sum(x, 1), 0) / width
        x = tl.where(here, x - mean, 0)
        inverse_std = 1 / tl.sqrt(tl.sum(tl.sum(x * x, 1), 0) / width + epsilon)
        x *= inverse_std * tl.load(scale + column, here, 0).to(tl.float32)
        if SHIFTS:
            x += tl.load(shift + column, here, 0).to(tl.float32)
        tl.store(normed + row * width + column, x.to(normed.dtype.element_ty), here)
        tl.store(stats + row * 2, mean)
        tl.store(stats + row * 2 + 1, inverse_std)


@triton.jit(do_not_specialize=["state", "dropped", "rows", "size"])
def _back(
    first: Value,
    second: Value,
    to_sums: Value,
    inputs: Value,
    stats: Value,
    scale: Value,
    to_residuals: Value,
    to_products: Value,
    totals: Value,
    state: Value,
    dropped: Value,
    rows: Value,
    size: Value,
    width: tl.constexpr,
    NORMS: tl.constexpr,
    TWO: tl.constexpr,
    SUMS: tl.constexpr,
    DROPS: tl.constexpr,
    BIAS: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    group = tl.program_id(0).to(tl.int64)
    eighth, within = tl.arange(0, WIDE), tl.arange(0, 8)
    column = eighth[:, None] * 8 + within[None, :]
    inside = column < width
    to_scale, to_shift = tl.zeros((WIDE, 8), tl.float32), tl.zeros((WIDE, 8), tl.float32)
    to_bias = tl.zeros((WIDE, 8), tl.float32)
    if NORMS:
        factor = tl.load(scale + column, inside, 0).to(tl.float32)
    for number in range(0, size):
        row = group * size + number
        at, here = row * width + column, inside & (row < rows)
        gradient = tl.load(first + at, here, 0).to(tl.float32)
        if TWO:
            gradient += tl.load(second + at, here, 0).to(tl.float32)
        if NORMS:
            mean, inverse_std = tl.load(stats + row * 2, row < rows, 0), tl.load(stats + row * 2 + 1, row < rows, 0)
            x = tl.where(here, (tl.load(inputs + at, here, 0).to(tl.float32) - mean) * inverse_std, 0)
            to_scale += gradient * x
            to_shift += gradient
            gradient *= factor
            along, mean_gradient = tl.sum(tl.sum(gradient * x, 1), 0) / width, tl.sum(tl.sum(gradient, 1), 0) / width
            gradient = (gradient - x * along - mean_gradient) * inverse_std
            if SUMS:
                gradient += tl.load(to_sums + at, here, 0).to(tl.float32)
            tl.store(to_residuals + at, gradient.to(to_residuals.dtype.element_ty), here)
        if DROPS:
            gradient *= _mask(state, row, eighth, within, dropped, (width + 7) // 8)
            tl.store(to_products + at, gradient.to(to_products.dtype.element_ty), here)
        if BIAS:
            to_bias += tl.where(here, gradient, 0)
    totals += group * (2 * NORMS + BIAS) * width + column
    if NORMS:
        tl.store(totals, to_scale, inside)
        tl.store(totals + width, to_shift, inside)
    if BIAS:
        tl.store(totals + 2 * NORMS * width, to_bias, inside)


def _shape(width: int) -> tuple[int, int]:
    """Return the groups of eight columns of a program, and its warps: eight numbers per thread."""
    wide: int = triton.next_power_of_2(triton.cdiv(width, 8))
    return wide, min(max(wide // 32, 1), 16)


def _group(rows: int, warps: int) -> int:
    return max(GROUP, int(triton.next_power_of_2(triton.cdiv(rows, WARPS // warps))))


def _assert_rows(*tensors: Tensor | None) -> None:
    assert all(tensor is None or tensor.is_contiguous() for tensor in tensors), "tensors must be contiguous"


def _launch(
    products: Tensor | None,
    residuals: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    state: int,
    dropped: int,
    epsilon: float,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    _assert_rows(products, residuals, scale, shift)
    sums, normed, stats = _outputs(products, residuals, scale, shift, state, dropped, epsilon, kind)
    rows, width = residuals.shape
    if residuals.numel():
        wide, warps = _shape(width)
        spare = residuals  # placeholder for missing tensors
        _forward[(rows,)](
            spare if products is None else products,
            residuals,
            spare if scale is None else scale,
            spare if shift is None else shift,
            sums,
            normed,
            stats,
            state,
            dropped,
            epsilon,
            width,
            products is not None,
            dropped > 0,
            scale is not None,
            shift is not None,
            wide,
            num_warps=warps,
        )
    return sums, normed, stats


def _outputs(
    products: Tensor | None,
    residuals: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    state: int,
    dropped: int,
    epsilon: float,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    sums, normed, stats = (residuals.new_empty(0) for _ in range(3))
    if products is not None:
        sums = torch.empty_like(residuals, dtype=torch.promote_types(residuals.dtype, products.dtype))
    if scale is not None:
        normed = torch.empty_like(residuals, dtype=kind)
        stats = torch.empty(len(residuals), 2, dtype=torch.float32, device=residuals.device)
    return sums, normed, stats


def _launch_back(
    first: Tensor,
    second: Tensor | None,
    to_sums: Tensor | None,
    inputs: Tensor | None,
    stats: Tensor | None,
    scale: Tensor | None,
    state: int,
    dropped: int,
    bias: bool,
    to: torch.dtype,
    of: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    _assert_rows(first, second, to_sums, inputs, stats, scale)
    outs = _outputs_back(first, second, to_sums, inputs, stats, scale, state, dropped, bias, to, of)
    rows, width = first.shape
    if first.numel():
        wide, warps = _shape(width)
        tensors = (first if tensor is None else tensor for tensor in (second, to_sums, inputs, stats, scale))
        _back[(len(outs[2]),)](
            first,
            *tensors,
            *outs,
            state,
            dropped,
            rows,
            _group(rows, warps),
            width,
            scale is not None,
            second is not None,
            to_sums is not None,
            dropped > 0,
            bias,
            wide,
            num_warps=warps,
        )
    return outs


def _outputs_back(
    first: Tensor,
    second: Tensor | None,
    to_sums: Tensor | None,
    inputs: Tensor | None,
    stats: Tensor | None,
    scale: Tensor | None,
    state: int,
    dropped: int,
    bias: bool,
    to: torch.dtype,
    of: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = first.shape
    to_residuals = first.new_empty(0) if scale is None else torch.empty_like(first, dtype=to)
    to_products = torch.empty_like(first, dtype=of) if dropped else first.new_empty(0)
    groups, sums = -(-rows // _group(rows, _shape(width)[1])), 2 * (scale is not None) + bias
    totals = torch.empty(groups, sums, width, dtype=torch.float32, device=first.device)
    return to_residuals, to_products, totals


_op = define(
    "residual_norm(Tensor? products, Tensor residuals, Tensor? scale, Tensor? shift, int state, int dropped,"
    " float epsilon, ScalarType kind) -> (Tensor, Tensor, Tensor)",
    _launch,
    _outputs,
)
_op_back = define(
    "residual_norm_backward(Tensor first, Tensor? second, Tensor? to_sums, Tensor? inputs, Tensor? stats,"
    " Tensor? scale, int state, int dropped, bool bias, ScalarType to, ScalarType of) -> (Tensor, Tensor, Tensor)",
    _launch_back,
    _outputs_back,
)


@dataclass(frozen=True)
class _Options:
    drop: Drop
    epsilon: float
    kind: torch.dtype
    after: bool = False  # return the norm twice instead of sum and norm


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        products: Tensor | None,
        residuals: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        bias: Tensor | None,
        options: _Options,
    ) -> Any:
        flat, more = _rows(residuals), None if products is None else _rows(products)
        sums, normed, stats = _op(
            more, flat, scale, shift, options.drop.state, options.drop.dropped, options.epsilon, options.kind
        )
        ctx.options, ctx.bias = options, None if bias is None else bias.dtype
        ctx.kinds = [residuals.dtype, residuals.dtype if products is None else products.dtype]
        ctx.adds, ctx.shifts = products is not None, None if shift is None else shift.dtype
        ctx.save_for_backward(*(() if scale is None else (flat if products is None else sums, stats, scale)))
        ctx.set_materialize_grads(False)
        added = residuals if products is None else sums.view_as(residuals)
        if scale is None:
            return added
        normed = normed.view_as(residuals)
        return (normed, normed.view_as(normed)) if options.after else (added, normed)

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        inputs, stats, scale = ctx.saved_tensors or (None, None, None)
        shape = next(gradient.shape for gradient in gradients if gradient is not None)
        flat = [None if gradient is None else _rows(gradient) for gradient in gradients]
        first, *rest = flat if scale is None or (ctx.options.after and flat[0] is not None) else flat[::-1]
        if first is None:  # the norm is unused
            assert inputs is not None
            first = inputs.new_zeros(inputs.shape, dtype=ctx.options.kind)
        last = rest[0] if rest else None
        second, to_sums = (last, None) if ctx.options.after else (None, last)
        drop = ctx.options.drop
        to_residuals, to_products, totals = _op_back(
            first, second, to_sums, inputs, stats, scale, drop.state, drop.dropped, ctx.bias is not None, *ctx.kinds
        )
        to_residuals = (first.to(ctx.kinds[0]) if scale is None else to_residuals).view(shape)
        to_products = to_products.view(shape) if drop.dropped else to_residuals.to(ctx.kinds[1])
        summed = list(totals.sum(0))
        to_bias = None if ctx.bias is None else summed.pop().to(ctx.bias)
        to_scale = None if scale is None else summed[0].to(scale.dtype)
        to_shift = None if ctx.shifts is None else summed[1].to(ctx.shifts)
        return to_products if ctx.adds else None, to_residuals, to_scale, to_shift, to_bias, None


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).contiguous()


def add(products: Tensor, residuals: Tensor, bias: Tensor | None, drop: Drop) -> Tensor:
    """Return residuals + dropout(products). `bias` is part of the products already; it only gets its gradient here."""
    options = _Options(drop, 0.0, residuals.dtype)
    sums: Tensor = _Together.apply(products, residuals, None, None, bias, options)  # type: ignore[no-untyped-call]
    return sums


def add_norm(
    products: Tensor | None,
    residuals: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    epsilon: float,
    kind: torch.dtype,
    *,
    bias: Tensor | None = None,
    drop: Drop = KEEP,
    after: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return residuals + dropout(products) and its norm; with `after`, the norm twice.

    The backward pass adds up the gradients of both uses of the norm.
    """
    options = _Options(drop, epsilon, kind, after)
    pair: tuple[Tensor, Tensor] = _Together.apply(  # type: ignore[no-untyped-call]
        products, residuals, scale, shift, bias, options
    )
    return pair


def mask(shape: torch.Size, drop: Drop, device: torch.device) -> Tensor:
    """Return the dropout factors of the kernel: 0 if dropped, else 1 / (actual keep rate)."""
    eighths = -(-shape[-1] // 8)
    numbers = np.arange(shape[:-1].numel() * eighths)
    bits = chance.bits(drop.key, numbers).astype("<u8").view(np.uint8).reshape(-1, eighths * 8)[:, : shape[-1]]
    return torch.from_numpy((bits >= drop.dropped) * np.float32(256 / (256 - drop.dropped))).view(shape).to(device)


def plain(
    products: Tensor | None,
    residuals: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    epsilon: float,
    kind: torch.dtype,
    *,
    drop: Drop = KEEP,
) -> tuple[Tensor, Tensor]:
    sums = residuals
    if products is not None:
        dropped = mask(products.shape, drop, products.device).to(products.dtype) if drop.dropped else 1
        sums = residuals + products * dropped
    if scale is None:
        return sums, sums
    shift = None if shift is None else shift.float()
    return sums, F.layer_norm(sums.float(), sums.shape[-1:], scale.float(), shift, epsilon).to(kind)


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare results and gradients with `plain` on a few rows; return the difference in words, or an empty string."""
    every = itertools.product(shapes.widths, shapes.residuals, shapes.shifts, shapes.drops)
    for width, residual, shifts, drops in every:
        noise = torch.Generator().manual_seed(0)
        tensors = [random_tensor(noise, (10, width), device, kind) for kind in (shapes.dtype, residual)]
        tensors += [random_tensor(noise, (width,), device) for _ in range(2 + shifts)]
        drop = Drop(7, 26) if drops else KEEP
        for options in ("sum and norm", "norm twice", "sum", "norm"):
            if not _same(options, tensors, shapes, drop):
                return "other numbers or gradients than torch's"
    return ""


def _same(how: str, tensors: list[Tensor], shapes: Shapes, drop: Drop) -> bool:
    noise, results = torch.Generator().manual_seed(1), []
    above = [torch.randn(tensors[0].shape, generator=noise).to(tensors[0].device) for _ in range(2)]
    drop = KEEP if how == "norm" else drop
    for way, (products, residuals, scale, bias, *shifts) in ((_ours, tensors), (_exact, in_fp32(*tensors))):
        leaves = [residuals, *([] if how == "norm" else [products, bias]), *([] if how == "sum" else [scale, *shifts])]
        outs = way(how, products, residuals, scale, shifts[0] if shifts else None, bias, drop, shapes.normed)
        gradients = [gradient.to(out.dtype) for gradient, out in zip(above, outs, strict=False)]
        results.append([*outs, *torch.autograd.grad(outs, leaves, gradients)])
    return close(results[0], results[1], shapes.dtype)


def _ours(
    how: str,
    products: Tensor,
    residuals: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    bias: Tensor,
    drop: Drop,
    kind: torch.dtype,
) -> Sequence[Tensor]:
    if how == "sum":
        return [add(products, residuals, bias, drop)]
    if how == "norm":
        return add_norm(None, residuals, scale, shift, 1e-5, kind)[1:]
    return add_norm(products, residuals, scale, shift, 1e-5, kind, bias=bias, drop=drop, after=how == "norm twice")


def _exact(
    how: str,
    products: Tensor,
    residuals: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    bias: Tensor,
    drop: Drop,
    kind: torch.dtype,
) -> Sequence[Tensor]:
    added = None if how == "norm" else products + (bias - bias.detach())
    sums, normed = plain(added, residuals, None if how == "sum" else scale, shift, 1e-5, torch.float32, drop=drop)
    return {"sum": [sums], "norm": [normed], "norm twice": [normed, normed], "sum and norm": [sums, normed]}[how]


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    drop = Drop(chance.key(1), 26)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for width in (256, 768, 1_024) if dtype == torch.bfloat16 else (1_024,):
            x = torch.zeros(64, width, dtype=dtype, device=device)
            scale, stats = torch.ones(width, device=device), torch.zeros(64, 2, device=device)
            _launch(x, x, scale, scale, drop.state, drop.dropped, 1e-5, dtype)
            _launch_back(x, x, None, x, stats, scale, drop.state, drop.dropped, True, dtype, dtype)
            _launch_back(x, None, x, x, stats, scale, drop.state, drop.dropped, True, dtype, dtype)
        _launch(x, x, None, None, drop.state, drop.dropped, 0.0, dtype)
        _launch(None, x, scale, None, 0, 0, 1e-5, dtype)
        _launch_back(x, None, None, None, None, None, drop.state, drop.dropped, True, dtype, dtype)
        _launch_back(x, None, x, x, stats, scale, 0, 0, False, dtype, dtype)
