"""Parts of a step on a GPU, each alone: products by shape, attention by kernel, heads by width of the vocabulary.

python tests/measure/gpu_parts.py [--small]    --small: a 256th of everything, on a CPU
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SMALL = "--small" in sys.argv or not torch.cuda.is_available()
DEVICE, TOKENS = ("cpu", 256) if SMALL else ("cuda", 65_536)


def milliseconds(act: Callable[[], object], repeat: int = 10) -> float:
    """The median of several, by the device's own clock."""
    if DEVICE == "cpu":
        began = time.perf_counter()
        act()
        return (time.perf_counter() - began) * 1e3
    for _ in range(3):
        act()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
    marks[0].record()
    for mark in marks[1:]:
        act()
        mark.record()
    torch.cuda.synchronize()
    return float(sorted(one.elapsed_time(other) for one, other in itertools.pairwise(marks))[repeat // 2])


def tell(name: str, act: Callable[[], object], *, flops: float = 0.0, moved: float = 0.0) -> None:
    try:
        spent = milliseconds(act)
    except Exception as error:  # a kernel that is not there is a finding
        print(f"{name:56s} {type(error).__name__}: {str(error).splitlines()[0][:80]}", flush=True)
        return
    rate = f" {flops / spent / 1e9:8.1f} TFLOP/s" if flops else f" {moved / spent / 1e6:8.0f} GB/s" if moved else ""
    print(f"{name:56s} {spent:9.3f} ms{rate}", flush=True)


def made(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


def products() -> None:
    for size in (256,) if SMALL else (4096, 8192):
        one, other = made(size, size), made(size, size)
        tell(f"{size} cubed", lambda one=one, other=other: one @ other, flops=2 * size**3)  # type: ignore[misc]
    wide = made(1 << (16 if SMALL else 30))
    tell("copy", lambda: wide.clone(), moved=2 * wide.numel() * wide.element_size())
    for inner, outer in ((768, 2304), (768, 768), (768, 3072), (3072, 768), (256, 1024), (1024, 4096), (4096, 1024)):
        x, weight, gradient = made(TOKENS, inner), made(outer, inner), made(TOKENS, outer)
        flops = 2.0 * TOKENS * inner * outer
        tell(f"linear {inner} -> {outer}", lambda x=x, w=weight: F.linear(x, w), flops=flops)  # type: ignore[misc]
        tell("  to its input", lambda g=gradient, w=weight: g @ w, flops=flops)  # type: ignore[misc]
        tell("  to its weight", lambda g=gradient, x=x: g.T @ x, flops=flops)  # type: ignore[misc]


def heads() -> None:
    """Rows that begin anywhere, and such as begin at multiples of 128."""
    for rows, width, words in ((9728, 768, 30_522), (9728, 768, 30_592), (4096, 1024, 50_257), (4096, 1024, 50_304)):
        rows, words = (rows // 64, words // 64) if SMALL else (rows, words)
        hidden, table = made(rows, width), made(words, width)
        scores, flops = hidden @ table.T, 2.0 * rows * width * words
        tell(f"head {rows} x {width} x {words}", lambda h=hidden, t=table: h @ t.T, flops=flops)  # type: ignore[misc]
        tell("  to its input", lambda s=scores, t=table: s @ t, flops=flops)  # type: ignore[misc]
        tell("  to its table", lambda s=scores, h=hidden: s.T @ h, flops=flops)  # type: ignore[misc]
        tell("  logs of shares", lambda s=scores: s.float().log_softmax(1))  # type: ignore[misc]


def attention(rows: int, heads: int, length: int, *, causal: bool) -> None:
    """Forward and back with a mask of two texts a row, without one, and by one kernel for texts of any length."""
    rows = max(rows * TOKENS // 65_536, 1)
    fused = made(rows, length, heads, 3, 64).requires_grad_()
    query, key, value = (part.transpose(1, 2) for part in fused.unbind(3))
    gradient, half = made(rows, heads, length, 64), length // 2
    mask = torch.zeros(rows, 1, length, length, device=DEVICE, dtype=torch.bfloat16)
    mask[:, :, half:, :half] = mask[:, :, :half, half:] = -torch.inf
    flops = 14.0 * rows * heads * length**2 * 64 / (2 if causal else 1)

    def both(seen: Tensor | None, rate: float) -> None:
        out = F.scaled_dot_product_attention(query, key, value, seen, rate, is_causal=causal and seen is None)
        torch.autograd.grad(out, fused, gradient)

    for rate in (0.0, 0.1):
        for name, seen in (("no mask", None), ("mask", mask)):
            tell(
                f"attention {rows} x {heads} x {length}, {rate}, {name}", lambda s=seen, r=rate: both(s, r), flops=flops
            )  # type: ignore[misc]
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):

                def by(backend: SDPBackend = backend, seen: Tensor | None = seen, rate: float = rate) -> None:
                    with sdpa_kernel(backend):
                        both(seen, rate)

                tell(f"  {backend.name.lower()}", by, flops=flops)
        flat = fused.detach().flatten(0, 1).requires_grad_()
        ends = torch.arange(0, rows * length + 1, half, device=DEVICE, dtype=torch.int32)

        def of_any_length(flat: Tensor = flat, ends: Tensor = ends, rate: float = rate) -> None:
            each = flat.unbind(2)
            out = torch.ops.aten._flash_attention_forward(*each, ends, ends, half, half, rate, causal, False)[0]
            torch.autograd.grad(out, flat, torch.ones_like(out))

        tell("  texts of half a row, by their ends", of_any_length, flops=flops / 2)


if __name__ == "__main__":
    products()
    heads()
    for rows, count, length, causal in (
        (512, 12, 128, False),
        (128, 12, 512, False),
        (128, 16, 512, False),
        (64, 16, 1024, True),
    ):
        attention(rows, count, length, causal=causal)
