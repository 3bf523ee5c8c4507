"""The LSTM cell with projection and clipping, by two kernels per step for all D directions in parallel.

A step is two of torch's products and two kernels in each pass. The plain version in nn/lstm.py launches about sixteen
kernels per step and direction.

    ahead [D, T, B, 4C], bias [D, 4C] -> out [D, T, B, P], states [D, T, B, C]
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.nn.context import Context
from ordsmed.nn.kernels.trial import Shapes, close, in_fp32

BLOCK = 1_024


@triton.jit
def _tanh(x: Value) -> Value:
    """Return tanh with fp32 accuracy; near 0, where the quotient of exponentials is inaccurate, by a series."""
    square = x * x
    near = 62 / 2835 - square * (1382 / 155925 - square * (21844 / 6081075))
    near = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * near))))
    small = tl.exp(-2 * tl.abs(x))
    far = (1 - small) / (1 + small)
    return tl.where(tl.abs(x) < 0.35, near, tl.where(x < 0, -far, far))


@triton.jit
def _clipped(x: Value, clip: Value) -> Value:
    """Clip x to [-clip, clip]; NaN stays NaN."""
    return tl.where(x > clip, clip, tl.where(x < -clip, -clip, x))


@triton.jit
def _cell(
    ahead: Value,
    bias: Value,
    product: Value,
    before: Value,
    gates: Value,
    states: Value,
    mixed: Value,
    rows: Value,
    wide: Value,
    narrow: Value,
    before_wide: Value,
    clip: Value,
    CELLS: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    """Compute gates, state and output of one step; `wide`, `narrow`: strides between directions."""
    row, cell = tl.program_id(0), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    way, line, here = (row // rows).to(tl.int64), row % rows, cell < CELLS
    at = way * wide + line * 4 * CELLS + cell
    of_row, shared = row.to(tl.int64) * 4 * CELLS + cell, way * 4 * CELLS + cell
    i = tl.load(ahead + at, here, 0).to(tl.float32) + tl.load(bias + shared, here, 0)
    f = tl.load(ahead + at + CELLS, here, 0).to(tl.float32) + tl.load(bias + shared + CELLS, here, 0)
    g = tl.load(ahead + at + 2 * CELLS, here, 0).to(tl.float32) + tl.load(bias + shared + 2 * CELLS, here, 0)
    o = tl.load(ahead + at + 3 * CELLS, here, 0).to(tl.float32) + tl.load(bias + shared + 3 * CELLS, here, 0)
    i = tl.sigmoid(i + tl.load(product + of_row, here, 0).to(tl.float32))
    f = tl.sigmoid(f + tl.load(product + of_row + CELLS, here, 0).to(tl.float32))
    g = _tanh(g + tl.load(product + of_row + 2 * CELLS, here, 0).to(tl.float32))
    o = tl.sigmoid(o + tl.load(product + of_row + 3 * CELLS, here, 0).to(tl.float32))
    c = f * tl.load(before + way * before_wide + line * CELLS + cell, here, 0) + i * g
    c = _clipped(c, clip)
    tl.store(gates + at, i, here)
    tl.store(gates + at + CELLS, f, here)
    tl.store(gates + at + 2 * CELLS, g, here)
    tl.store(gates + at + 3 * CELLS, o, here)
    location = way * narrow + line * CELLS + cell
    tl.store(states + location, c, here)
    tl.store(mixed + location, (o * _tanh(c)).to(mixed.dtype.element_ty), here)


@triton.jit
def _cell_back(
    gates: Value,
    to_mixed: Value,
    states: Value,
    before: Value,
    to_c: Value,
    gradients: Value,
    rows: Value,
    wide: Value,
    narrow: Value,
    before_wide: Value,
    clip: Value,
    CLIPS: tl.constexpr,
    CELLS: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    """Compute the gradients of one step's gates; replace the gradient of its state by that of the previous state."""
    row, cell = tl.program_id(0), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    way, line, here = (row // rows).to(tl.int64), row % rows, cell < CELLS
    at, of_row = way * wide + line * 4 * CELLS + cell, row.to(tl.int64) * CELLS + cell
    i, f = tl.load(gates + at, here, 0), tl.load(gates + at + CELLS, here, 0)
    g, o = tl.load(gates + at + 2 * CELLS, here, 0), tl.load(gates + at + 3 * CELLS, here, 0)
    c = tl.load(states + way * narrow + line * CELLS + cell, here, 0)
    gradient = tl.load(to_mixed + of_row, here, 0).to(tl.float32)
    squashed = _tanh(c)
    to_state = tl.load(to_c + of_row, here, 0) + gradient * o * (1 - squashed * squashed)
    if CLIPS:
        to_state *= (tl.abs(c) < clip).to(tl.float32)
    old = tl.load(before + way * before_wide + line * CELLS + cell, here, 0)
    kind = gradients.dtype.element_ty
    tl.store(gradients + at, (to_state * g * i * (1 - i)).to(kind), here)
    tl.store(gradients + at + CELLS, (to_state * old * f * (1 - f)).to(kind), here)
    tl.store(gradients + at + 2 * CELLS, (to_state * i * (1 - g * g)).to(kind), here)
    tl.store(gradients + at + 3 * CELLS, (gradient * squashed * o * (1 - o)).to(kind), here)
    tl.store(to_c + of_row, to_state * f, here)


@triton.jit
def _leave(
    product: Value,
    out: Value,
    carried: Value,
    count: Value,
    wide: Value,
    carried_wide: Value,
    clip: Value,
    SIZE: tl.constexpr,
) -> None:
    """Clip the projected output of a step; store it in fp32, and in the products' precision for the next step."""
    way, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    x = _clipped(tl.load(product + way * count + at, at < count, 0).to(tl.float32), clip)
    tl.store(out + way * wide + at, x, at < count)
    tl.store(carried + way * carried_wide + at, x.to(carried.dtype.element_ty), at < count)


@triton.jit
def _project_back(
    above: Value,
    later: Value,
    out: Value,
    to_out: Value,
    count: Value,
    wide: Value,
    clip: Value,
    CLIPS: tl.constexpr,
    LATER: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    """Add the gradients of a step's output from above and from the next step; 0 where the output was clipped."""
    way, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    here = at < count
    gradient = tl.load(above + way * wide + at, here, 0)
    if LATER:
        gradient += tl.load(later + way * count + at, here, 0).to(tl.float32)
    if CLIPS:
        gradient *= (tl.abs(tl.load(out + way * wide + at, here, 0)) < clip).to(tl.float32)
    tl.store(to_out + way * wide + at, gradient.to(to_out.dtype.element_ty), here)


class _SideBySide(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        ahead: Tensor,
        bias: Tensor,
        h: Tensor,
        c: Tensor,
        carry: Tensor,
        project: Tensor,
        clips: tuple[float, float],
    ) -> tuple[Tensor, Tensor]:
        ways, steps, rows, width = ahead.shape
        cells, size = width // 4, project.shape[1]
        gates = ahead.new_empty(ahead.shape, dtype=torch.float32)
        states, mixed = gates.new_empty(ways, steps, rows, cells), ahead.new_empty(ways, steps, rows, cells)
        out, carried = gates.new_empty(ways, steps, rows, size), ahead.new_empty(ways, steps + 1, rows, size)
        carried[:, 0] = h
        cell_clip, out_clip = (clip or float("inf") for clip in clips)
        first = c.contiguous()
        grid, out_grid = (ways * rows, triton.cdiv(cells, BLOCK)), (ways, triton.cdiv(rows * size, BLOCK))
        enter, leave = carry.transpose(1, 2), project.transpose(1, 2)
        for t in range(steps):
            before = states[:, t - 1] if t else first
            _cell[grid](
                ahead[:, t],
                bias,
                torch.bmm(carried[:, t], enter),
                before,
                gates[:, t],
                states[:, t],
                mixed[:, t],
                rows,
                gates.stride(0),
                states.stride(0),
                before.stride(0),
                cell_clip,
                cells,
                BLOCK,
            )
            _leave[out_grid](
                torch.bmm(mixed[:, t], leave),
                out[:, t],
                carried[:, t + 1],
                rows * size,
                out.stride(0),
                carried.stride(0),
                out_clip,
                BLOCK,
            )
        ctx.clips = clips
        ctx.mark_non_differentiable(states)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gates, states, mixed, out, carried, first, carry, project)
        return out, states

    @staticmethod
    def backward(ctx: Context, above: Tensor | None, none: None) -> tuple[Tensor | None, ...]:
        if above is None:
            return (None,) * 7
        gates, states, mixed, out, carried, first, carry, project = ctx.saved_tensors
        (ways, steps, rows, cells), size, above = states.shape, out.shape[-1], above.float().contiguous()
        gradients, to_out = torch.empty_like(gates, dtype=carry.dtype), torch.empty_like(out, dtype=carry.dtype)
        to_c = torch.zeros_like(first)
        grid, out_grid = (ways * rows, triton.cdiv(cells, BLOCK)), (ways, triton.cdiv(rows * size, BLOCK))
        later = above
        for t in reversed(range(steps)):
            before = states[:, t - 1] if t else first
            _project_back[out_grid](
                above[:, t],
                later,
                out[:, t],
                to_out[:, t],
                rows * size,
                out.stride(0),
                ctx.clips[1],
                bool(ctx.clips[1]),
                t + 1 < steps,
                BLOCK,
            )
            _cell_back[grid](
                gates[:, t],
                torch.bmm(to_out[:, t], project),
                states[:, t],
                before,
                to_c,
                gradients[:, t],
                rows,
                gates.stride(0),
                states.stride(0),
                before.stride(0),
                ctx.clips[0],
                bool(ctx.clips[0]),
                cells,
                BLOCK,
            )
            later = torch.bmm(gradients[:, t], carry)
        to_carry = torch.bmm(gradients.flatten(1, 2).transpose(1, 2), carried[:, :-1].flatten(1, 2))
        to_project = torch.bmm(to_out.flatten(1, 2).transpose(1, 2), mixed.flatten(1, 2))
        return gradients, gradients.sum((1, 2), dtype=torch.float32), None, None, to_carry, to_project, None


def side_by_side(
    ahead: Tensor, bias: Tensor, h: Tensor, c: Tensor, carry: Tensor, project: Tensor, clips: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Run D directions and return the outputs and the cell states of all steps.

    ahead [D, T, B, 4C], the input's part of the gates, carry [D, 4C, P] and project [D, P, C] are in the precision of
    the products; bias [D, 4C], h [D, B, P] and c [D, B, C] are fp32.
    """
    pair: tuple[Tensor, Tensor] = _SideBySide.apply(  # type: ignore[no-untyped-call]
        ahead.contiguous(), bias.contiguous(), h, c, carry.contiguous(), project.contiguous(), clips
    )
    return pair


def plain(
    ahead: Tensor, bias: Tensor, h: Tensor, c: Tensor, carry: Tensor, project: Tensor, clips: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Compute the same by torch's kernels and autograd, for `check`; nn/lstm.py has the fast version."""
    outs, states = [], []
    cell_clip, out_clip = (clip or torch.inf for clip in clips)
    for t in range(ahead.shape[1]):
        i, f, g, o = (ahead[:, t] + bias[:, None] + h @ carry.transpose(1, 2)).chunk(4, -1)
        c = (f.sigmoid() * c + i.sigmoid() * g.tanh()).clamp(-cell_clip, cell_clip)
        h = ((o.sigmoid() * c.tanh()) @ project.transpose(1, 2)).clamp(-out_clip, out_clip)
        outs.append(h)
        states.append(c)
    return torch.stack(outs, 1), torch.stack(states, 1)


def check(device: torch.device, shapes: Shapes) -> str:
    """Compare two steps and their gradients with `plain`; return the difference in words, or an empty string."""
    tried = [(cells, size, shapes.dtype, (3.0, 3.0)) for cells, size in shapes.cells]  # no value is clipped
    for cells, size, dtype, clips in [(40, 24, torch.float32, (0.5, 0.25)), *tried]:
        noise = torch.Generator().manual_seed(0)
        gates = 4 * cells
        sizes = (2, 2, 3, gates), (2, gates, size), (2, size, cells), (2, gates), (2, 3, size), (2, 3, cells)
        types = (dtype, dtype, dtype, *[torch.float32] * 3)
        scales = 2, size**0.5, cells**0.5, 2, 2, 2
        tensors = [
            (torch.randn(shape, generator=noise) / by).to(device, kind).requires_grad_()
            for shape, kind, by in zip(sizes, types, scales, strict=True)
        ]
        results = []
        for way, (ahead, carry, project, bias, h, c) in ((side_by_side, tensors), (plain, in_fp32(*tensors))):
            out, states = way(ahead, bias, h, c, carry, project, clips)
            results.append([out, states, *torch.autograd.grad(out.sin().sum(), (ahead, bias, carry, project))])
        if not close(results[0], results[1], dtype):
            return "other states or gradients than torch's"
    return ""


def examples(device: torch.device) -> None:
    """Launch the kernels with typical sizes, for ahead-of-time compilation."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        ahead, carry = torch.empty(2, 2, 4, 4 * 256, dtype=dtype), torch.empty(2, 4 * 256, 64, dtype=dtype)
        project, bias = torch.empty(2, 64, 256, dtype=dtype, requires_grad=True), torch.empty(2, 4 * 256)
        out, _ = side_by_side(ahead, bias, torch.empty(2, 4, 64), torch.empty(2, 4, 256), carry, project, (3.0, 3.0))
        out.sum().backward()
