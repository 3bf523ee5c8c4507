"""Attention over texts of variable length, end to end in one row, by torch's flash kernels without a mask.

torch.nn.attention.varlen supports windows but not dropout. With dropout the underlying operator is called directly.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from ordsmed.base.machine.devices import Accelerator, card_of

MAX_TEXTS = 65_535  # maximum number of texts: CUDA's limit of blocks per grid dimension
WIDEST = 256  # largest head size
HALF = (torch.bfloat16, torch.float16)
OLDEST = (8, 0)  # Ampere


@dataclass(frozen=True)
class Texts:
    """The text of each token, and the starts of texts, known without reading them from the GPU (a synchronization)."""

    documents: Tensor  # [B, T]
    bounds: Tensor  # int32 [N + 1]  with the rows end to end, and the end


@dataclass(frozen=True)
class EndToEnd:
    """Texts end to end; a token attends only to tokens of the same text."""

    bounds: Tensor  # int32 [N + 1]  where texts begin, with the rows end to end, and the end
    longest: int  # upper bound of the length of texts
    reach: int | None = None  # tokens visible to either side; None: the complete text

    @staticmethod
    def rows(batch: int, length: int, reach: int | None, device: torch.device) -> EndToEnd:
        bounds = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32, device=device)
        return EndToEnd(bounds, length, reach)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float, rate: float) -> Tensor:
        """Attend over query, key and value [B, H, T, d]; `rate`: dropout of attention weights."""
        batch, _, length, _ = query.shape
        rows = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]  # [B * T, H, d], mostly views
        sides = -1 if self.reach is None else self.reach, 0 if causal else -1 if self.reach is None else self.reach
        inputs = (*rows, self.bounds, self.bounds, self.longest, self.longest)
        if rate:
            options = {"scale": scale, "window_size_left": sides[0], "window_size_right": sides[1]}
            mixed = torch.ops.aten._flash_attention_forward(*inputs, rate, sides == (-1, 0), False, **options)[0]
        else:
            from torch.nn.attention.varlen import varlen_attn

            mixed = varlen_attn(*inputs, scale=scale, window_size=sides)  # type: ignore[arg-type]
        out: Tensor = mixed.unflatten(0, (batch, length)).transpose(1, 2)
        return out


def bounds(documents: Tensor) -> Tensor | None:
    """Return where texts begin, with the rows end to end, and the end of the last text, int32 [N + 1].

    Padding (0) counts as a text. Return None if a text is not contiguous or padding precedes a text; these need masks.
    Synchronizes if `documents` is on a GPU.
    """
    steps = torch.where(documents == 0, documents.max() + 1, documents).diff()
    if (steps < 0).any():
        return None
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = steps > 0
    starts = begins.flatten().nonzero()[:, 0].int()
    return torch.cat([starts, starts.new_tensor([documents.numel()])])


def why_not(device: torch.device, dtype: torch.dtype, head: int, card: Accelerator | None = None) -> str:
    """Return the first requirement of these kernels that is not met, such as "a GPU (here: cpu)"; "" if they can run.

    Args:
        head: size of a head.
        card: the GPU of a planned job, instead of this machine's.
    """
    if device.type != "cuda":
        return f"a GPU (here: {device.type})"
    card = card or card_of(device)
    if card.amd if card else torch.version.hip is not None:
        return "an NVIDIA GPU, because others do not support windows"
    if dtype not in HALF:
        return f"bf16 or fp16 (here: {str(dtype).removeprefix('torch.').replace('float32', 'fp32')})"
    if head > WIDEST or head % 8:
        return f"heads of at most {WIDEST} numbers, a multiple of 8 (here: {head})"
    if not has_windows():
        return f"torch 2.11 or later (here: {torch.__version__})"
    if card and card.capability < OLDEST:
        return "compute capability {}.{} ({}: {}.{})".format(*OLDEST, card.name, *card.capability)
    return ""


@functools.cache
def has_windows() -> bool:
    """Return whether this torch has the public function with windows; torch 2.10 has it without."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "window_size" in inspect.signature(varlen_attn).parameters
