"""Operators of torch made of kernels, so that compiled blocks, fake tensors and what counts launches see one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_library = torch.library.Library("ordsmed", "FRAGMENT")


def define(schema: str, launch: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that launches; `made` says, of fake tensors, what it gives. Its slopes are an autograd.Function's."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, launch, "CompositeExplicitAutograd")
    _library.impl(name, made, "Meta")
    operator: Callable[..., Any] = getattr(torch.ops.ordsmed, name).default
    return operator
