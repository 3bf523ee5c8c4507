"""Rotary positions (Su et al. 2021): pairs of a head's features, half a head apart, are rotated by an angle.

Queries and keys are rotated together, and the gradients of query, key and value are written into one buffer, to save
passes over memory. For rows longer than in pretraining, angles may be scaled: linear (Chen et al. 2023), NTK-aware, or
YaRN (Peng et al. 2023).
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordsmed.nn.context import Context

Turn = tuple[Tensor, Tensor]  # cosine and sine of every position's angles, [B, T, d]
FAST, SLOW = 32, 1  # rotations over the pretraining length: YaRN keeps pairs above and scales pairs below


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How the rotary angles are scaled beyond the length of pretraining."""

    kind: Literal["linear", "ntk", "yarn"]
    """linear: divide all angles by the factor; ntk: enlarge the base; yarn: scale only slow pairs"""
    factor: float
    """ratio of the new row length to that of pretraining"""
    learned: int = 0
    """yarn: row length of pretraining, in tokens; 0: the model's positions divided by the factor;
    elsewhere original_max_position_embeddings"""

    def __post_init__(self) -> None:
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"factor: found {self.factor:g}; wanted 1 or more")
        if self.learned < 0 or (self.learned and self.kind != "yarn"):
            raise ValueError(f"learned: found {self.learned} with {self.kind}; wanted a length, with yarn only")

    def base(self, theta: float, head: int) -> float:
        return theta * self.factor ** (head / (head - 2)) if self.kind == "ntk" and head > 2 else theta

    def length(self, positions: int) -> int:
        return self.learned or max(1, round(positions / self.factor))

    def hugging_face(self, theta: float, head: int, positions: int) -> dict[str, Any]:
        """Return the entry of config.json; NTK scaling is exported as a larger base."""
        if self.kind == "ntk":
            return {"rope_type": "default", "rope_theta": self.base(theta, head)}
        learned = {"original_max_position_embeddings": self.length(positions)} if self.kind == "yarn" else {}
        return {"rope_type": self.kind, "rope_theta": theta, "factor": self.factor, **learned}


def angles(
    positions: Tensor, theta: float, head: int, scaling: RopeScaling | None = None, longest: int = 0
) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angles in fp32, [B, T] -> [B, T, d] each."""
    base = scaling.base(theta, head) if scaling else theta
    frequencies = 1.0 / base ** (torch.arange(0, head, 2, dtype=torch.float32, device=positions.device) / head)
    scale = 1.0
    if scaling and scaling.kind == "linear":
        frequencies = frequencies / scaling.factor
    if scaling and scaling.kind == "yarn":
        frequencies = _yarn(frequencies, theta, scaling, scaling.length(longest))
        scale = 0.1 * math.log(scaling.factor) + 1.0
    turned = (positions[..., None].float() * frequencies).repeat(1, 1, 2)
    return (turned.cos(), turned.sin()) if scale == 1 else (turned.cos() * scale, turned.sin() * scale)


def _yarn(frequencies: Tensor, theta: float, scaling: RopeScaling, learned: int) -> Tensor:
    """Return YaRN's frequencies: fast pairs unchanged, slow pairs divided by the factor, others in between."""
    head = 2 * len(frequencies)
    first, last = (head * math.log(learned / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (FAST, SLOW))
    low, high = max(math.floor(first), 0), min(math.ceil(last), head - 1)
    position = torch.arange(len(frequencies), dtype=torch.float32, device=frequencies.device)
    share = ((position - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequencies / scaling.factor * share + frequencies * (1 - share)


def split_rotated(fused: Tensor, turn: Turn) -> tuple[Tensor, Tensor, Tensor]:
    """Split [B, T, H, 3, d] into the rotated query, the rotated key and the value, [B, T, H, d] each."""
    if torch.compiler.is_compiling():  # the compiler fuses these passes
        query, key, value = fused.unbind(3)
        return turned(query, turn), turned(key, turn), value
    parts: tuple[Tensor, Tensor, Tensor] = _SplitRotated.apply(fused, *turn)  # type: ignore[no-untyped-call]
    return parts


def turned(x: Tensor, turn: Turn) -> Tensor:
    """Return x [B, T, H, d] rotated, by operations that torch.compile fuses."""
    first, second = x.float().chunk(2, -1)
    spun = torch.cat([-second, first], -1)
    return (x.float() * turn[0].unsqueeze(2) + spun * turn[1].unsqueeze(2)).to(x.dtype)


class _SplitRotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, fused: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cosine, sine)
        both, half = fused[..., :2, :].float(), fused.shape[-1] // 2
        cosine, sine = cosine[:, :, None, None], sine[:, :, None, None]
        out = both * cosine
        out_part = torch.mul(both[..., half:], sine[..., :half])
        out[..., :half] -= out_part
        out[..., half:] += torch.mul(both[..., :half], sine[..., half:], out=out_part)
        query, key = out.to(fused.dtype).unbind(3)
        return query, key, fused.select(3, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        cosine, sine = (saved.unsqueeze(2) for saved in ctx.saved_tensors)
        shape, half = gradients[0].shape, gradients[0].shape[-1] // 2
        buffer = gradients[0].new_empty(*shape[:3], 3, shape[3])
        for number, gradient in enumerate(gradients[:2]):
            gradient, out_part = gradient.float(), buffer.select(3, number)
            back = out_part if out_part.dtype == torch.float32 else torch.empty_like(gradient)
            torch.mul(gradient, cosine, out=back)
            part = torch.mul(gradient[..., half:], sine[..., half:])
            back[..., :half] += part
            back[..., half:] -= torch.mul(gradient[..., :half], sine[..., :half], out=part)
            if back is not out_part:
                out_part.copy_(back)
        buffer.select(3, 2).copy_(gradients[2])
        return buffer, None, None
