"""Is it right on this GPU? Kernels of ours in real types and widths, and attention of texts of any length, beside fp64.

python tests/measure/gpu_checks.py environment | kernels | attention [--small]    --small: on a CPU, tiny
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_parts import DEVICE, SMALL, made, tell
from torch import Tensor
from torch.nn import functional as F

if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

TYPES = (torch.bfloat16, torch.float16, torch.float32)
PACKAGES = ("triton", "msgspec", "tomli_w", "zstandard", "tokenizers", "safetensors", "pytest", "xdist")


def environment() -> None:
    """What figures depend on, and what the rest needs."""
    print(
        f"Python {platform.python_version()}, torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {torch.backends.cudnn.version()}, {len(os.sched_getaffinity(0))} cores"
    )
    if DEVICE == "cuda":
        print(torch.cuda.get_device_properties(0))
    lacks = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    print(
        f"missing packages: {', '.join(lacks) or 'none'}; C compiler: {shutil.which('cc') or shutil.which('gcc')}; "
        f"Python.h: {header.exists()}; /dev/shm: {shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB"
    )
    if shutil.which("nvidia-smi"):
        subprocess.run(["nvidia-smi"], check=False)


def apart(ours: Sequence[Tensor], exact: Sequence[Tensor]) -> str:
    """The largest difference of each, as a share of the largest number."""
    shares = []
    for one, other in zip(ours, exact, strict=True):
        if not one.isfinite().all():
            return "NO NUMBERS"
        shares.append(float((one.double() - other).abs().max() / other.abs().max().clamp_min(1e-30)))
    return " ".join(f"{share:.1e}" for share in shares)


def beside(name: str, ours: Callable[..., Any], plain: Callable[..., Any], given: Sequence[Tensor]) -> None:
    """Ours and torch's in the same type, each beside fp64: what comes out and what is learned; seconds of the first."""
    results, first = [], 0.0
    for way, dtype in ((ours, None), (plain, None), (plain, torch.float64)):
        leaves = [(one if dtype is None else one.to(dtype)).detach().requires_grad_() for one in given]
        began = time.perf_counter()
        try:
            outs = way(*leaves)
            above = [torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out) for out in outs]
            above = [one.to(given[0].dtype).to(out.dtype) for one, out in zip(above, outs, strict=True)]
            results.append([*(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, above)])
        except Exception as error:  # one that does not build must not hide the others
            print(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}", flush=True)
            return
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        first = first or time.perf_counter() - began
    print(
        f"{name}: ours {apart(results[0], results[2])} | torch's {apart(results[1], results[2])} | first {first:.1f} s",
        flush=True,
    )


def kernels() -> None:
    """Every kernel in every type, at the widths of the recipes."""
    if importlib.util.find_spec("triton") is None:
        print("Triton is not installed")
        return
    from ordsmed.nn.kernels import gelu, lstm, switch
    from ordsmed.nn.kernels.trial import Shapes

    switch.DEVICES = (DEVICE,)
    for dtype in TYPES:
        name = str(dtype)[6:]
        size, words, lstms = (24, 300, (48, 16)) if SMALL else (768, 50_257, (4_096, 512))
        shapes = Shapes(
            dtype, (dtype, torch.float32), dtype, (size,), inner=(4 * size,), vocabulary=(words,), cells=(lstms,)
        )
        began = time.perf_counter()
        print(f"{name}: {switch.begin('auto', torch.device(DEVICE), shapes)} ({time.perf_counter() - began:.1f} s)")
        for tanh in (False, True):
            z, bias = made(4 * size, 4 * size, dtype=dtype), made(4 * size, dtype=dtype)
            beside(
                f"gelu{' tanh' if tanh else ''} {name}",
                lambda z, b, t=tanh: [gelu._Gelu.apply(z + b.detach(), b, t)],
                lambda z, b, t=tanh: [F.gelu(z + b, approximate="tanh" if t else "none")],
                (z, bias),
            )
        for width in (size, size * 4 // 3):
            norms(width, dtype)
        cross_entropies(300 if SMALL else 30_522, dtype)
        cells, out = lstms
        sizes = (2, 4, 8, 4 * cells), (2, 4 * cells), (2, 8, out), (2, 8, cells), (2, 4 * cells, out), (2, out, cells)
        given = [
            made(*shape, dtype=dtype if at in (0, 4, 5) else torch.float32) / shape[-1] ** 0.5
            for at, shape in enumerate(sizes)
        ]
        whole = [one if at in (0, 1, 4, 5) else one.zero_() for at, one in enumerate(given)]
        carried = whole[2:4]
        beside(
            f"LSTM {cells} {name}",
            lambda a, b, k, p, s=carried: lstm.side_by_side(a, b, *s, k, p, (3.0, 3.0))[:1],
            lambda a, b, k, p, s=carried: lstm.plain(*(x.to(p.dtype) for x in (a, b, *s, k, p)), (3.0, 3.0))[:1],
            [whole[0], whole[1], *whole[4:]],
        )


def norms(width: int, dtype: torch.dtype) -> None:
    """Residual, dropout and norm, before and after."""
    from ordsmed.nn.dropout import Drop
    from ordsmed.nn.kernels.residual_norm import add_norm, mask

    drop, rows = Drop(7, 26), 40 if SMALL else 8_192
    kept = mask(torch.Size([rows, width]), drop, torch.device(DEVICE))
    given = [
        made(rows, width, dtype=dtype),
        made(rows, width, dtype=dtype),
        made(width, dtype=torch.float32) + 1,
        made(width, dtype=torch.float32),
    ]

    def plain(x: Tensor, residuals: Tensor, scale: Tensor, shift: Tensor) -> list[Tensor]:
        both = residuals + x * kept.to(x.dtype)
        return [both, F.layer_norm(both, (width,), scale.to(x.dtype), shift.to(x.dtype), 1e-5)]

    beside(
        f"residual norm {width} {str(dtype)[6:]}",
        lambda x, r, scale, shift: add_norm(x, r, scale, shift, 1e-5, dtype, drop=drop),
        plain,
        given,
    )


def cross_entropies(words: int, dtype: torch.dtype) -> None:
    """The whole head, with targets of all shares."""
    from ordsmed.nn import loss

    rows, width = (16, 16) if SMALL else (2_048, 768)
    table = made(words, width, dtype=torch.float32) / width**0.5
    targets = torch.randint(words, (rows,), device=DEVICE)
    lean = torch.linspace(0, 2 * width**0.5 / 2, rows, device=DEVICE)[:, None]
    hidden = made(rows, width, dtype=torch.float32) * 0.3 + lean * table[targets]
    weights = torch.ones(rows, device=DEVICE)

    def ours(hidden: Tensor, table: Tensor) -> list[Tensor]:
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            return [loss.token_loss(hidden, table, None, targets, weights)]

    def plain(hidden: Tensor, table: Tensor) -> list[Tensor]:
        kind = torch.float64 if hidden.dtype == torch.float64 else dtype
        scores = (hidden.to(kind) @ table.to(kind).T).to(torch.promote_types(kind, torch.float32))
        return [F.cross_entropy(scores, targets, reduction="sum")]

    if SMALL:
        loss.BY_HAND = ()
    beside(f"cross entropy {words} {str(dtype)[6:]}", ours, plain, (hidden, table))


def definition(parts: Sequence[Tensor], ends: list[int], *, causal: bool) -> Tensor:
    """Each text by itself, [N, H, d]."""
    texts = []
    for begin, end in itertools.pairwise(ends):
        own = [part[begin:end].transpose(0, 1) for part in parts]
        scores = own[0] @ own[1].transpose(1, 2) / own[0].shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        texts.append((scores.softmax(-1) @ own[2]).transpose(0, 1))
    return torch.cat(texts)


def flash(parts: Sequence[Tensor], ends: Tensor, longest: int, rate: float, *, causal: bool) -> Tensor:
    out: Tensor = torch.ops.aten._flash_attention_forward(*parts, ends, ends, longest, longest, rate, causal, False)[0]
    return out


def forward_and_back(fused: Tensor, *given: Any, causal: bool) -> None:
    out = flash(fused.unbind(2), *given, causal=causal)
    torch.autograd.grad(out, fused, torch.ones_like(out))


def attention() -> None:
    """Texts of any length by flash: numbers, the mean under dropout, and the time."""
    for heads, length, rows, causal in ((12, 128, 512, False), (12, 512, 128, False), (16, 1_024, 64, True)):
        rows, length = (2, 16) if SMALL else (rows, length)
        cuts = [0]
        while cuts[-1] < rows * length:
            cuts.append(min(cuts[-1] + 1 + (len(cuts) * 7919) % length, rows * length))
        ends = torch.tensor(cuts, dtype=torch.int32, device=DEVICE)
        fused = made(rows * length, heads, 3, 64).requires_grad_()
        few = next(at for at, end in enumerate(cuts) if end >= min(4 * length, rows * length))
        own = fused.detach()[: cuts[few]].double().requires_grad_()
        exact = definition(own.unbind(2), cuts[: few + 1], causal=causal)
        above = torch.linspace(-1, 1, exact.numel(), device=DEVICE).view_as(exact).to(fused.dtype)
        (learned,) = torch.autograd.grad(exact, own, above.double())
        name = f"flash {heads} x {length}{' causal' if causal else ''}"
        try:
            part = fused.detach()[: cuts[few]].requires_grad_()
            out = flash(part.unbind(2), ends[: few + 1], length, 0.0, causal=causal)
            (gradient,) = torch.autograd.grad(out, part, above)
            print(f"{name}: states and gradients apart from fp64 by {apart([out, gradient], [exact, learned])}")
            if not causal:
                given = part.detach().unbind(2), ends[: few + 1], length, 0.1
                draws = torch.stack([flash(*given, causal=causal).float() for _ in range(50)])
                off = (draws.mean(0) - exact).norm() / exact.norm()
                print(f"{name}: mean of 50 draws at 0.1 off by {float(off):.1e}", flush=True)
        except Exception as error:  # a kernel that is not there is a finding
            print(f"{name}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}", flush=True)
            continue
        flops = 14.0 * heads * 64 * sum((b - a) ** 2 for a, b in itertools.pairwise(cuts)) / (2 if causal else 1)
        for rate in (0.0, 0.1):
            both = functools.partial(forward_and_back, fused, ends, length, rate, causal=causal)
            tell(f"{name}, dropout {rate}, forward and back", both, flops=flops)


if __name__ == "__main__":
    torch.manual_seed(0)
    {"environment": environment, "kernels": kernels, "attention": attention}[sys.argv[1]]()
