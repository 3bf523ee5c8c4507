"""Rotary positions (Su et al. 2021): each pair of numbers of a head, half a head apart, turned by its place's angle.

Queries and keys are turned together, in few passes, and the gradients of the three come back in one buffer.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordsmed.nn.context import Context

Turn = tuple[Tensor, Tensor]  # cosine and sine of every place's angles, [B, T, d]


def parted(fused: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
    """[B, T, H, 3, d] -> query, key, both turned, and value; each [B, T, H, d]."""
    if torch.compiler.is_compiling():  # which fuses these passes itself
        query, key, value = fused.unbind(3)
        return turned(query, turn), turned(key, turn), value
    parts: tuple[Tensor, Tensor, Tensor] = _Parted.apply(fused, *turn)  # type: ignore[no-untyped-call]
    return parts


def turned(x: Tensor, turn: Turn) -> Tensor:
    """[B, T, H, d], as it is defined."""
    first, second = x.float().chunk(2, -1)
    spun = torch.cat([-second, first], -1)
    return (x.float() * turn[0].unsqueeze(2) + spun * turn[1].unsqueeze(2)).to(x.dtype)


class _Parted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, fused: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cosine, sine)
        both, half = fused[..., :2, :].float(), fused.shape[-1] // 2
        cosine, sine = cosine[:, :, None, None], sine[:, :, None, None]
        out = both * cosine
        room = torch.mul(both[..., half:], sine[..., :half])
        out[..., :half] -= room
        out[..., half:] += torch.mul(both[..., :half], sine[..., half:], out=room)
        query, key = out.to(fused.dtype).unbind(3)
        return query, key, fused.select(3, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Turned back."""
        cosine, sine = (saved.unsqueeze(2) for saved in ctx.saved_tensors)
        shape, half = gradients[0].shape, gradients[0].shape[-1] // 2
        buffer = gradients[0].new_empty(*shape[:3], 3, shape[3])
        for number, gradient in enumerate(gradients[:2]):
            gradient, room = gradient.float(), buffer.select(3, number)
            back = room if room.dtype == torch.float32 else torch.empty_like(gradient)
            torch.mul(gradient, cosine, out=back)
            part = torch.mul(gradient[..., half:], sine[..., half:])
            back[..., :half] += part
            back[..., half:] -= torch.mul(gradient[..., :half], sine[..., :half], out=part)
            if back is not room:
                room.copy_(back)
        buffer.select(3, 2).copy_(gradients[2])
        return buffer, None, None
