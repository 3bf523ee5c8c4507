"""The data types and sizes with which kernels are tried, and the comparison of their results with exact ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BOUNDS = {torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 2e-2}  # tolerances relative to the largest number


@dataclass(frozen=True)
class Shapes:
    """Data types and sizes of a run; the defaults are small and in fp32."""

    dtype: torch.dtype = torch.float32  # of products
    residuals: tuple[torch.dtype, ...] = (torch.float32,)  # of the residual stream
    normed: torch.dtype = torch.float32  # of the output of norms
    widths: tuple[int, ...] = (76,)  # of norms
    shifts: tuple[bool, ...] = (True,)  # whether norms have a bias
    drops: tuple[bool, ...] = (True,)  # whether there is dropout
    inner: tuple[int, ...] = (40,)  # output sizes of linear layers
    vocabulary: tuple[int, ...] = (700,)
    cells: tuple[tuple[int, int], ...] = ((40, 24),)  # cells and output width of LSTMs


def close(results: Iterable[Tensor], references: Iterable[Tensor], dtype: torch.dtype) -> bool:
    """Return whether results equal the exact references, within the precision of `dtype`."""
    for result, reference in ((a.detach(), b.detach()) for a, b in zip(results, references, strict=True)):
        bound = BOUNDS[dtype] * float(reference.abs().max().clamp_min(1e-20))
        if not float((result.float() - reference).abs().max()) <= bound:  # NaN fails
            return False
    return True


def random_tensor(
    noise: torch.Generator, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.randn(shape, generator=noise).to(device, dtype).requires_grad_()


def in_fp32(*tensors: Tensor) -> list[Tensor]:
    return [tensor.detach().float().requires_grad_() for tensor in tensors]


@contextmanager
def exact_products() -> Iterator[None]:
    """Disable TF32 for fp32 products within this context."""
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch 2.9 and later warn to use `fp32_precision`
        before = [backend.allow_tf32 for backend in backends]
        try:
            for backend in backends:
                backend.allow_tf32 = False
            yield
        finally:
            for backend, switched in zip(backends, before, strict=True):
                backend.allow_tf32 = switched
