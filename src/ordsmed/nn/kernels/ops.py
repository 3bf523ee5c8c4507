"""Operators of torch made of kernels, so that compiled blocks, fake tensors and what counts launches see one each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_library = torch.library.Library("ordsmed", "FRAGMENT")


def define(schema: str, launch: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """An operator that launches; `fake`: what it gives of fake tensors. Its gradients are an autograd.Function's."""
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, launch, "CompositeExplicitAutograd")
    _library.impl(name, fake, "Meta")
    operator: Callable[..., Any] = getattr(torch.ops.ordsmed, name).default
    return operator
