"""What a run will ask of kernels, which are tried in its own types and widths; and when two results are alike."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BOUNDS = {torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 2e-2}  # shares of the largest number


@dataclass(frozen=True)
class Shapes:
    """Types and sizes; the usual ones are a few small ones in fp32."""

    dtype: torch.dtype = torch.float32  # of products
    residuals: tuple[torch.dtype, ...] = (torch.float32,)  # of what blocks add to
    normed: torch.dtype = torch.float32  # of what norms give
    widths: tuple[int, ...] = (76,)  # of norms
    shifts: tuple[bool, ...] = (True,)  # have norms a bias?
    drops: tuple[bool, ...] = (True,)  # is something dropped?
    inner: tuple[int, ...] = (40,)  # of layers before an activation
    vocabulary: tuple[int, ...] = (700,)
    cells: tuple[tuple[int, int], ...] = ((40, 24),)  # of LSTMs, and the width of what they let out


def alike(results: Iterable[Tensor], references: Iterable[Tensor], dtype: torch.dtype) -> bool:
    """Are these numbers those, which are exact, as nearly as the type that ours were made in can tell?"""
    for result, reference in ((a.detach(), b.detach()) for a, b in zip(results, references, strict=True)):
        bound = BOUNDS[dtype] * float(reference.abs().max().clamp_min(1e-20))
        if not float((result.float() - reference).abs().max()) <= bound:  # what is no number is not alike
            return False
    return True


def made(
    noise: torch.Generator, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Numbers that something is learned of."""
    return torch.randn(shape, generator=noise).to(device, dtype).requires_grad_()


def exact(*tensors: Tensor) -> list[Tensor]:
    """The same in fp32, apart from them."""
    return [tensor.detach().float().requires_grad_() for tensor in tensors]


@contextmanager
def exact_products() -> Iterator[None]:
    """Products in fp32 without TF32, whatever the run has switched on."""
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch 2.9 and later ask for `fp32_precision`
        before = [backend.allow_tf32 for backend in backends]
        try:
            for backend in backends:
                backend.allow_tf32 = False
            yield
        finally:
            for backend, switched in zip(backends, before, strict=True):
                backend.allow_tf32 = switched
