"""Networks without memory for weights: parameters on the `meta` device have only a shape.

with unfilled():
    network = settings.build(vocabulary)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DRAWS = {
    Tensor.normal_,
    nn.init.normal_,
    nn.init.trunc_normal_,
    nn.init.xavier_normal_,
    nn.init.kaiming_normal_,
    nn.init.orthogonal_,
}


class _WithoutDraws(TorchFunctionMode):
    """Skip random initialization of meta tensors, for which torch would load its compiler (2 s, 100 MB)."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        named = kwargs or {}
        if func in DRAWS and (weight := args[0] if args else named["tensor"]).is_meta:
            return weight
        return func(*args, **named)


@contextlib.contextmanager
def unfilled() -> Iterator[None]:
    """Create all tensors within this context on the `meta` device."""
    with torch.device("meta"), _WithoutDraws():
        yield
