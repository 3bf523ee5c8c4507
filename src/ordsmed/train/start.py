"""What a training starts from: is a [model] the network that `init` has?"""

from __future__ import annotations

import dataclasses
import json

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError
from ordsmed.nn.model import ModelSettings


def check_same(ours: ModelSettings | None, theirs: ModelSettings, init: str) -> None:
    """Refuse a [model] that is not the network of `init`, by what differs; none (None) is right."""
    if ours is None:
        return
    kinds = [menu.kind_of(model) for model in (ours, theirs)]
    names = unlike(ours, theirs)
    if kinds[0] != kinds[1]:
        found, wanted = (f"kind {kind}" for kind in kinds)
    elif names:
        found, wanted = (", ".join(f"{name} {_said(model, name)}" for name in names) for model in (ours, theirs))
    else:
        return
    raise RecipeError("model", f"found {found}", f"{wanted}, as {init} has", "leave [model] out (`model=none`)")


def _said(model: ModelSettings, name: str) -> str:
    value = settings.plain(getattr(model, name, None))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def unlike(ours: ModelSettings, theirs: ModelSettings) -> list[str]:
    """In which settings two networks differ; dropout, fresh weights and what a token sees may."""
    free = ("dropout", "initializer_std", "spread", "deep", "lstm", "types", "causal")
    fields = dict.fromkeys(f.name for model in (ours, theirs) for f in dataclasses.fields(model))
    names = [name for name in fields if not name.endswith(free)]
    found = [name for name in names if getattr(ours, name, None) != getattr(theirs, name, None)]
    own, other = (getattr(model, "types", None) for model in (ours, theirs))
    return found + (["types"] if own != other and {own, other} != {0, 1} else [])  # a row of zeros there is none here
