"""Import: conversion of a model in another format to a folder for `embed`, `export` and `init`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ordsmed.base import hub
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import WEIGHTS
from ordsmed.base.menu import kind_of
from ordsmed.base.screen import command, command_lines
from ordsmed.weights import import_folder, weights
from ordsmed.weights.export import check


def take_over(source: str | Path, out: str | Path, overrides: Sequence[str] = (), *, anew: bool = False) -> list[str]:
    """Convert the model at `source` to the folder `out`, completely or not at all. Return lines to print."""
    target, path = Path(out), hub.folder(source)
    for word in overrides:
        if not word.startswith(("model.", "objective.", "task.")):
            wanted = "model.key=value, objective.key=value or task.key=value"
            raise RecipeError(f"`{word}`", "is not a setting of the model, objective or task", wanted)
    check(target, path, anew=anew)
    form = import_folder.recognised(path)
    imported = form.read(path, overrides)
    import_folder.write(imported, target, path, form)
    size = sum(math.prod(shape) for shape in weights.shapes(target / WEIGHTS).values())
    kind = kind_of(imported.networks.model)
    line = f"{target}: {kind} with {size:,} numbers, from {path} ({kind_of(form)})"
    return [line, *command_lines("next", command("show", target))]
