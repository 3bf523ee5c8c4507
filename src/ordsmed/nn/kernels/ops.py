"""torch operators made of kernels, so that compiled blocks, fake tensors and launch counters see one operator each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_library = torch.library.Library("ordsmed", "FRAGMENT")


def define(schema: str, launch: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
    """Register an operator that calls `launch`; `fake` returns its results for fake tensors.

    Its gradients are defined by an autograd.Function.
    """
    name = schema.partition("(")[0]
    _library.define(schema)
    _library.impl(name, launch, "CompositeExplicitAutograd")
    _library.impl(name, fake, "Meta")
    operator: Callable[..., Any] = getattr(torch.ops.ordsmed, name).default
    return operator
