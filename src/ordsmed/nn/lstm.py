"""An LSTM layer with a projection, either exact, with ELMo's clipping at every step, or by torch's fused kernels.

    gates = x @ enter + h @ carry + bias (and 1 for the forget gate)    i f g o, [4C]
    c = clip(f * c + i * g)        h = clip((o * tanh c) @ project)

The exact path is one loop over time with a hand-written backward pass. Everything that does not depend on the previous
step (the input's part of the gates, the gradients of the weights) is one product over all steps.
"""

import contextlib
import math
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ordsmed.nn import products
from ordsmed.nn.context import Context
from ordsmed.nn.kernels import switch

OLDEST_BF16 = 91_300  # first version of cuDNN whose recurrent kernels support bf16
FORGET_BIAS = 1.0  # added to the forget gate and not stored, as in TensorFlow's cell


class Lstm(nn.Module):
    def __init__(self, width: int, cells: int, *, cell_clip: float, projection_clip: float) -> None:
        super().__init__()
        self.cells, self.clips = cells, (cell_clip, projection_clip)
        self.enter = nn.Parameter(torch.empty(4 * cells, width))
        self.carry = nn.Parameter(torch.empty(4 * cells, width))
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        self.project = nn.Parameter(torch.empty(width, cells)) if cells != width else None
        bound = math.sqrt(6 / (2 * width + 4 * cells))  # Glorot's, with input and recurrent weights as one matrix
        nn.init.uniform_(self.enter, -bound, bound)
        nn.init.uniform_(self.carry, -bound, bound)
        if self.project is not None:
            nn.init.xavier_uniform_(self.project)

    def forward(
        self, x: Tensor, h: Tensor, c: Tensor, lengths: Tensor | None = None, *, fused: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs of all steps, and the states h [B, P] and c [B, C] after each row's last step.

        `lengths` are the numbers of steps of the rows; outputs after a row's last step are undefined. `fused` selects
        torch's kernel.
        """
        if fused:
            assert lengths is None, "torch's kernel does not return the states of intermediate steps"
            return self._fused(x, h, c)
        half = torch.is_autocast_enabled(x.device.type)
        dtype = torch.get_autocast_dtype(x.device.type) if half else x.dtype
        enter, carry = self.enter.to(dtype), self.carry.to(dtype)
        project = None if self.project is None else self.project.to(dtype)
        ahead = products.linear(x.to(dtype), enter).float()
        started = (ahead, h.float(), c.float())
        out, states = _Steps.apply(*started, carry, self.bias, project, self.clips)  # type: ignore[no-untyped-call]
        last = torch.full((x.shape[1],), len(x), device=x.device) if lengths is None else lengths
        rows = torch.arange(x.shape[1], device=x.device)
        return out, out.detach()[last - 1, rows], states[last - 1, rows]

    def _fused(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        bias = self.bias + _forget(self.bias)
        weights = [self.enter, self.carry, bias, torch.zeros_like(bias)]
        weights += [] if self.project is None else [self.project]
        kind = x.device.type
        half = kind != "cpu" and torch.is_autocast_enabled(kind)
        if half:  # autocast would run cuDNN's kernel in fp16, even if it is set to bf16
            x, *weights = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (x, *weights))
        plain = torch.autocast(kind, enabled=False) if half else contextlib.nullcontext()
        with plain, warnings.catch_warnings():
            # cuDNN copies the weights into one buffer at every call, which is cheap
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with (oneDNN|MIOpen)")
            begin = h[None].to(x.dtype).contiguous(), c[None].to(x.dtype).contiguous()  # as cuDNN requires
            out, last, state = torch.lstm(x, begin, weights, True, 1, 0.0, self.training, False, False)
        cell_clip, projection_clip = (clip or torch.inf for clip in self.clips)
        out, last = out.clamp(-projection_clip, projection_clip), last.clamp(-projection_clip, projection_clip)
        return out, last[0].detach().float(), state[0].detach().float().clamp(-cell_clip, cell_clip)


States = tuple[Tensor, Tensor, Tensor]


def read(
    lstms: Sequence[Lstm], xs: Sequence[Tensor], h: Tensor, c: Tensor, lengths: Tensor | None, *, fused: bool
) -> list[States]:
    """Run independent layers of equal sizes, each over its own x [T, B, I], from h [D, B, P] and c [D, B, C]."""
    by_kernels = (
        switch.runs("lstm", h.device) and not torch.compiler.is_compiling()
    )  # the compiler generates its own kernel
    if by_kernels and not fused and all(lstm.project is not None for lstm in lstms):
        return together(lstms, xs, h, c, lengths)
    return one_by_one(lstms, xs, h, c, lengths, fused=fused)


def one_by_one(
    lstms: Sequence[Lstm], xs: Sequence[Tensor], h: Tensor, c: Tensor, lengths: Tensor | None, *, fused: bool = False
) -> list[States]:
    return [lstm(x, h[way], c[way], lengths, fused=fused) for way, (lstm, x) in enumerate(zip(lstms, xs, strict=True))]


def together(lstms: Sequence[Lstm], xs: Sequence[Tensor], h: Tensor, c: Tensor, lengths: Tensor | None) -> list[States]:
    from ordsmed.nn.kernels.lstm import side_by_side  # needs Triton, which is installed if the kernel is on

    kind = xs[0].device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else xs[0].dtype
    ahead = torch.stack([x.to(dtype) @ lstm.enter.to(dtype).T for lstm, x in zip(lstms, xs, strict=True)])
    carry, project = (torch.stack([getattr(lstm, w).to(dtype) for lstm in lstms]) for w in ("carry", "project"))
    bias = torch.stack([lstm.bias + _forget(lstm.bias) for lstm in lstms])
    out, states = side_by_side(ahead, bias, h.float(), c.float(), carry, project, lstms[0].clips)
    steps, rows = xs[0].shape[:2]
    last = torch.full((rows,), steps, device=h.device) if lengths is None else lengths
    number = torch.arange(rows, device=h.device)
    ends = out.detach()[:, last - 1, number], states[:, last - 1, number]
    return [(out[way], ends[0][way], ends[1][way]) for way in range(len(lstms))]


def describe(fused: bool, cell_clip: float, projection_clip: float, lacks: str = "") -> str:
    """Return a line that says which implementation runs; `lacks`: why torch has no fused kernel on this device."""
    limits = f"cell at {cell_clip:g} and projection at {projection_clip:g}"
    if not fused:
        clipped = f", clipped at every step ({limits})" if cell_clip or projection_clip else ", without clipping"
        return f"LSTM: exact cell{clipped}"
    after = f"; it clips only at the end of a window ({limits})" if cell_clip or projection_clip else ""
    return f"LSTM: torch's loop over steps ({lacks}){after}" if lacks else f"LSTM: torch's fused kernel{after}"


def lacks_fused(device: str, precision: str, *, projects: bool) -> str:
    """Return why a GPU has no fused kernel for such layers; empty if it has one, or for a CPU."""
    if device == "cpu":
        return ""
    if torch.version.hip is not None:
        return "AMD's library has no kernel with projections" if projects else ""
    before = torch.__version__ < torch.torch_version.TorchVersion("2.10")
    if precision == "bf16" and (before or (torch.backends.cudnn.version() or OLDEST_BF16) < OLDEST_BF16):
        return "NVIDIA's kernel supports bf16 with torch 2.10, cuDNN 9.13 or later"
    return ""


def _forget(like: Tensor) -> Tensor:
    added = torch.zeros_like(like)
    added[len(like) // 4 : len(like) // 2] = FORGET_BIAS
    return added


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        ahead: Tensor,
        h: Tensor,
        c: Tensor,
        carry: Tensor,
        bias: Tensor,
        project: Tensor | None,
        clips: tuple[float, float],
    ) -> tuple[Tensor, Tensor]:
        steps, rows, width = ahead.shape
        cells, dtype = width // 4, carry.dtype
        gates, first = ahead + (bias + _forget(bias)), c
        states = gates.new_empty(steps, rows, cells)
        mixed = torch.empty(steps, rows, cells, dtype=dtype, device=gates.device)
        out = gates.new_empty(steps, rows, cells if project is None else len(project))
        carried = h
        for t in range(steps):
            gate = gates[t]
            if products.by_onednn(carried, carry):
                gate += products.times(carried, carry)
            elif dtype == torch.float32:
                gate.addmm_(carried, carry.T)
            else:
                gate.add_(carried.to(dtype) @ carry.T)
            i, f, g, o = gate.split(cells, 1)
            i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
            torch.mul(f, c, out=states[t])
            c = states[t].addcmul_(i, g)
            if clips[0]:
                c.clamp_(-clips[0], clips[0])
            mixed[t] = o * c.tanh()
            out[t] = mixed[t] if project is None else products.product(mixed[t], project.T)
            if clips[1]:
                out[t].clamp_(-clips[1], clips[1])
            carried = out[t]
        ctx.clips, ctx.cells = clips, cells
        ctx.mark_non_differentiable(states)
        ctx.set_materialize_grads(False)  # zeros would be as large as all cell states
        ctx.save_for_backward(gates, states, mixed, out, h, first, carry, *([] if project is None else [project]))
        return out, states

    @staticmethod
    def backward(ctx: Context, above: Tensor | None, none: None) -> tuple[Tensor | None, ...]:
        gates, states, mixed, out, h, first, carry, *rest = ctx.saved_tensors
        if above is None:
            return (None,) * 7
        project, cells, dtype = rest[0] if rest else None, ctx.cells, carry.dtype
        cell_clip, projection_clip = ctx.clips
        gradients, to_out = torch.empty_like(gates), torch.empty_like(above, dtype=dtype)
        to_c, from_next = torch.zeros_like(first), torch.zeros_like(h)
        for t in reversed(range(len(gates))):
            i, f, g, o = gates[t].split(cells, 1)
            to_i, to_f, to_g, to_out_gate = gradients[t].split(cells, 1)
            c, before = states[t], states[t - 1] if t else first
            to_h = above[t] + from_next
            if projection_clip:
                to_h.mul_(out[t].abs() < projection_clip)  # clipped outputs have no gradient
            to_out[t] = to_h
            to_mixed = to_h if project is None else products.product(to_out[t], project).float()
            bent = c.tanh()
            torch.mul(to_mixed, bent, out=to_out_gate)
            to_c.add_(torch.ops.aten.tanh_backward(to_mixed * o, bent))
            if cell_clip:
                to_c.mul_(c.abs() < cell_clip)
            torch.mul(to_c, g, out=to_i)
            torch.mul(to_c, before, out=to_f)
            torch.mul(to_c, i, out=to_g)
            for gradient, gate in ((to_i, i), (to_f, f), (to_out_gate, o)):
                torch.ops.aten.sigmoid_backward.grad_input(gradient, gate, grad_input=gradient)
            torch.ops.aten.tanh_backward.grad_input(to_g, g, grad_input=to_g)
            to_c.mul_(f)
            from_next = products.product(gradients[t].to(dtype), carry).float()
        flat = gradients.flatten(0, 1)
        product = flat.to(dtype)
        earlier = torch.cat([h[None], out[:-1]]).flatten(0, 1).to(dtype)
        to_project = None if project is None else products.across(to_out.flatten(0, 1), mixed.flatten(0, 1))
        return gradients, None, None, products.across(product, earlier), flat.sum(0), to_project, None
