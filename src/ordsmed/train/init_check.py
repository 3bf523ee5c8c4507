"""The initial weights of a training: check whether a recipe's [model] is the network of `init`."""

from __future__ import annotations

import dataclasses
import json

from ordsmed.base import menu, settings
from ordsmed.base.errors import RecipeError
from ordsmed.nn.model import ModelSettings


def check_same(settings: ModelSettings | None, stored: ModelSettings, init: str) -> None:
    if settings is None:
        return
    kinds = [menu.kind_of(model) for model in (settings, stored)]
    names = different_settings(settings, stored)
    if kinds[0] != kinds[1]:
        problem, wanted = (f"kind {kind}" for kind in kinds)
    elif names:
        problem, wanted = (
            ", ".join(f"{name} {_value_text(model, name)}" for name in names) for model in (settings, stored)
        )
    else:
        return
    raise RecipeError("model", f"found {problem}", f"{wanted}, as {init} has", "leave [model] out (`model=none`)")


def _value_text(model: ModelSettings, name: str) -> str:
    value = settings.plain(getattr(model, name, None))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def different_settings(settings: ModelSettings, stored: ModelSettings) -> list[str]:
    """Return the settings in which two networks differ, except those that may change, such as dropout."""
    free = ("dropout", "initializer_std", "spread", "deep", "lstm", "types", "causal")
    fields = dict.fromkeys(f.name for model in (settings, stored) for f in dataclasses.fields(model))
    names = [name for name in fields if not name.endswith(free)]
    names_unlike = [name for name in names if getattr(settings, name, None) != getattr(stored, name, None)]
    types, stored_types = (getattr(model, "types", None) for model in (settings, stored))
    return names_unlike + (
        ["types"] if types != stored_types and {types, stored_types} != {0, 1} else []
    )  # one type, a row of zeros, equals none
