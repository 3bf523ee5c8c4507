"""Kernels of our own on a GPU, each beside its plain form: how far apart they are, and the time of both.

python tests/measure/gpu_kernels.py [--small]    --small: little of everything, under Triton's interpreter on a CPU
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from gpu_parts import DEVICE, SMALL, made, tell
from torch import Tensor
from torch.nn import functional as F

if importlib.util.find_spec("triton") is None:
    print("Triton is not installed")
    raise SystemExit
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

from ordsmed.learn.optimizers import lamb
from ordsmed.learn.sampling import Draw
from ordsmed.nn import loss, lstm
from ordsmed.nn.dropout import Drop
from ordsmed.nn.kernels import adaptive_step, switch
from ordsmed.nn.shards import LocalParameter

BF16 = torch.bfloat16


def apart(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> str:
    """The largest difference, as a share of the largest number; where one is no number, that."""
    worst = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if not (one.isfinite().all() and other.isfinite().all()):
            return "NO NUMBERS"
        worst = max(
            worst, float((one.float() - other.float()).abs().max() / other.float().abs().max().clamp_min(1e-30))
        )
    return f"{worst:.1e}"


def both(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], moved: float = 0.0) -> None:
    tell(f"{name}, torch's", theirs)
    tell(f"{name}, ours", ours, moved=moved)


def heads(rows: int, width: int, words: int, *, drawn: bool, dtype: torch.dtype = BF16) -> None:
    """The loss of predicted words with its products, and the kernel alone."""
    rows, words = (max(rows // 2048, 4), words // 64) if SMALL else (rows, words)
    padded = -(-words // 128) * 128
    hidden, table = made(rows, width, dtype=dtype), made(words, width, dtype=torch.float32) / width**0.5
    hidden, table = hidden.requires_grad_(), table.requires_grad_()
    bias = torch.zeros(words, device=DEVICE, requires_grad=True)
    targets = torch.randint(words, (rows,), device=DEVICE)
    weights = torch.ones(rows, device=DEVICE)
    draw = Draw.of(torch.randint(1 << 60, (rows,), device=DEVICE), 1, words) if drawn else None

    def learned(choice: str) -> list[Tensor]:
        switch._running.clear()
        switch._running.update(switch.KERNELS if choice == "auto" else ())
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            value, words_drawn = loss._loss(hidden, table, bias, targets, weights, words, draw)
        return [value.detach(), *torch.autograd.grad(value, (hidden, table, bias)), words_drawn]

    name = f"head {rows} x {width} x {words}{', drawn' if drawn else ''}, {str(dtype)[6:]}"
    ours, theirs = learned("auto"), learned("plain")
    same = f", {float((ours[-1] == theirs[-1]).float().mean()):.2%} of draws the same" if drawn else ""
    print(f"{name}: {apart(ours[:-1], theirs[:-1])} apart{same}", flush=True)
    both(name, partial(learned, "auto"), partial(learned, "plain"))
    from ordsmed.nn.kernels.cross_entropy import cross_entropy, plain

    scores = made(min(rows, 8192), padded, dtype=dtype)
    some, keys = targets[: len(scores)], draw.slot_keys[: len(scores)] if draw else None
    both(
        "  the kernel alone",
        lambda: cross_entropy(scores, some, words, keys=keys),
        lambda: plain(scores, some),
        moved=3.0 * scores.numel() * scores.element_size(),
    )


def cells(rows: int, steps: int, width: int, count: int, *, dtype: torch.dtype = BF16) -> None:
    """One layer in both directions, forward and back."""
    rows, steps, count = (2, 3, count // 32) if SMALL else (rows, steps, count)
    layers = [lstm.Lstm(width, count, cell_clip=3.0, projection_clip=3.0).to(DEVICE) for _ in range(2)]
    xs = [made(steps, rows, width, dtype=torch.float32).requires_grad_() for _ in layers]
    h, c = (torch.zeros(2, rows, size, device=DEVICE) for size in (width, count))
    weights = [*chain.from_iterable(layer.parameters() for layer in layers)]

    def learned(way: Any) -> list[Tensor]:
        with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
            outs = [out for out, *_ in way(layers, xs, h, c, None)]
        return [*(out.detach() for out in outs), *torch.autograd.grad(outs, [*xs, *weights], [x.detach() for x in xs])]

    name = f"LSTM {rows} x {steps}, {count} cells, {str(dtype)[6:]}"
    print(f"{name}: {apart(learned(lstm.together), learned(lstm.one_by_one))} apart", flush=True)
    both(name, partial(learned, lstm.together), partial(learned, lstm.one_by_one))


def sums(rows: int, width: int, *, after: bool, dtype: torch.dtype = BF16) -> None:
    """What a block adds with dropout, and the norm behind it or before more, forward and back."""
    from ordsmed.nn.kernels.residual_norm import add_norm, mask

    rows = rows // 4096 if SMALL else rows
    products, residuals = (made(rows, width, dtype=dtype).requires_grad_() for _ in range(2))
    scale, shift, bias = (made(width, dtype=torch.float32).requires_grad_() for _ in range(3))
    leaves = (products, residuals, scale, shift, bias)
    above, drop = [made(rows, width, dtype=dtype) for _ in range(2)], Drop(7, 26)
    kept = mask(products.shape, drop, products.device).to(dtype)

    def learned(draws: Callable[[Tensor], Tensor] | None) -> list[Tensor]:
        if draws is None:
            outs = add_norm(
                products + bias.detach().to(dtype),
                residuals,
                scale,
                shift,
                1e-5,
                dtype,
                bias=bias,
                drop=drop,
                after=after,
            )
        else:
            both = residuals + draws(products + bias.to(dtype))
            normed = F.layer_norm(both, (width,), scale.to(dtype), shift.to(dtype), 1e-5)
            outs = (normed, normed) if after else (both, normed)
        return [*(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, above)]

    name = f"residual norm {rows} x {width}{', norm after' if after else ''}, {str(dtype)[6:]}"
    print(f"{name}: {apart(learned(None), learned(lambda x: x * kept))} apart", flush=True)
    both(name, partial(learned, None), partial(learned, partial(F.dropout, p=0.1)))


def table(rows: int, width: int, seen: int) -> None:
    """A step of Adagrad on a table of which few rows learned."""
    rows, seen = (rows // 4096, seen // 4096 + 1) if SMALL else (rows, seen)
    gradients = torch.zeros(rows, width, device=DEVICE)
    gradients[torch.randperm(rows, device=DEVICE)[:seen]] = made(seen, width, dtype=torch.float32)
    ours, theirs = ((torch.ones_like(gradients), torch.ones_like(gradients)) for _ in range(2))
    adaptive_step.step(*ours, gradients, 0.2)
    adaptive_step.plain(*theirs, gradients, 0.2)
    name = f"Adagrad {rows} x {width}, {seen} rows learned"
    print(f"{name}: {apart(ours, theirs)} apart", flush=True)
    weights = torch.nn.Parameter(theirs[0])
    weights.grad = gradients
    fused = torch.optim.Adagrad([weights], 0.2)
    both(name, lambda: adaptive_step.step(*ours, gradients, 0.2), fused.step, moved=4.0 * gradients.numel())


def whole_step(layers: int, width: int, words: int) -> None:
    """LAMB over the weights of an encoder."""
    shapes = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), *((width,) for _ in range(6))]
    shapes = [(words, width), *shapes] if SMALL else [(words, width), *shapes * layers]
    runs: dict[str, list[torch.nn.Parameter]] = {}
    steps: dict[str, Callable[[], None]] = {}
    for choice in ("auto", "plain"):
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(made(*shape, dtype=torch.float32)) for shape in shapes]
        parts = [LocalParameter.of(str(number), weight) for number, weight in enumerate(weights)]
        optimizer = lamb.Lamb().build([{"params": weights, "parts": parts, "kind": "matrix", "decayed": True}])
        optimizer.param_groups[0]["lr"] = 0.01
        for weight in weights:
            weight.grad = made(*weight.shape, dtype=torch.float32)
        runs[choice] = weights

        def step(choice: str = choice, optimizer: torch.optim.Optimizer = optimizer) -> None:
            switch._running.clear()
            switch._running.update(switch.KERNELS if choice == "auto" else ())
            optimizer.step()

        step()
        steps[choice] = step
    count = sum(weight.numel() for weight in runs["auto"])
    name = f"LAMB of {count / 1e6:.1f} M in {len(shapes)}"
    print(f"{name}: {apart(*runs.values())} apart", flush=True)
    both(name, steps["auto"], steps["plain"], moved=40.0 * count)


if __name__ == "__main__":
    if SMALL:
        switch.DEVICES, loss.BY_HAND = ("cpu",), ()
    print(switch.begin("auto", torch.device(DEVICE)), flush=True)
    heads(9728, 256, 30_522, drawn=True)
    heads(9728, 768, 30_522, drawn=False)
    heads(65_536, 1024, 50_257, drawn=False)
    heads(9728, 768, 30_522, drawn=False, dtype=torch.float32)
    for width in (768, 1024):
        sums(65_536, width, after=True)
        sums(65_536, width, after=False)
    sums(65_536, 256, after=True, dtype=torch.float32)
    cells(128, 20, 512, 4096)
    cells(128, 20, 512, 2048)
    cells(128, 20, 512, 4096, dtype=torch.float32)
    table(793_471, 512, 12_000)
    whole_step(12, 64 if SMALL else 768, 300 if SMALL else 30_522)
