"""Unfilled: networks without their numbers: the shapes of their weights, which take no memory.

with unfilled():
    network = settings.build(vocabulary)        every weight is on the device `meta`; nothing is drawn
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
    """Draws into weights that hold nothing are left out: torch loads its compiler for them (2 s, 100 MB)."""

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
    """What is built here has shapes alone."""
    with torch.device("meta"), _WithoutDraws():
        yield
