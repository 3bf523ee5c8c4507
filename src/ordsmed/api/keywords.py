"""Convert keywords of Python calls into `key.path=value` words of the command line.

steps=100, model={"width": 64}, **{"phase.learning_rate": 1e-3}
-> phase.steps=100 model.width=64 phase.learning_rate=0.001
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from types import UnionType
from typing import Any, TypeGuard, Union, get_args, get_origin, get_type_hints

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import kind_of_folder
from ordsmed.learn.phases import Phase
from ordsmed.train.request import table_of


def words_of(recipe: type[Any], name: str, overrides: Sequence[str], keywords: Mapping[str, object]) -> list[str]:
    """Return `overrides`, followed by the words for `keywords`, for the recipe of this name."""
    if threading.current_thread() is not threading.main_thread():
        wanted = "the main thread, which receives Ctrl-C and signals"
        raise RecipeError(recipe.verb, "called from another thread", wanted)
    if isinstance(overrides, str):
        raise RecipeError(f"{recipe.verb}: overrides", f"found the text {overrides!r}", '["key.path=value", ...]')
    types = {name: _kinds(hint) for name, hint in get_type_hints(recipe).items() if name in recipe.__dataclass_fields__}
    of_phases = {field.name for field in dataclasses.fields(Phase)} - set(types)
    words = list(overrides)
    for key, value in keywords.items():
        if value is None and str in types.get(key, ()):
            # the command line has no word to remove a setting, so None is only valid if the recipe does not set it
            if not kind_of_folder(Path(name)).made and key in table_of(recipe, name):
                remedy = "write a recipe without it"
                raise RecipeError(key, "found None, but the recipe sets it", "another value", remedy)
        elif key not in of_phases:
            whole = dict in types.get(key, ())  # a table whose keys the user chooses is replaced as a whole
            words += [f"{key}={settings.literal(value)}"] if whole else by_path(key, settings.plain(value))
    phased = {key: value for key, value in keywords.items() if key in of_phases}
    if phased and "phase" in types:
        words += _of_phases(_phases(recipe, name, words), phased)
        return words
    return words + [f"{key}={settings.literal(value)}" for key, value in phased.items()]


def _kinds(hint: object) -> set[object]:
    """Return the types a value may have, such as {str, dict} for `str | dict[str, float] | None`."""
    inner = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return {get_origin(kind) or kind for kind in inner}


def by_path(key: str, value: object) -> Iterator[str]:
    """Yield a word per entry of a table, so that other entries stay. A table with a `kind` is replaced as a whole."""
    if isinstance(value, Mapping) and value and "kind" not in value:
        for inner, setting in value.items():
            yield from by_path(f"{key}.{inner}", setting)
    else:
        yield f"{key}={settings.literal(value)}"


def _phases(recipe: type[Any], name: str, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the phases of a recipe after these overrides; none for a run's folder, which is resumed unchanged."""
    if kind_of_folder(Path(name)).made:
        return []
    phases = settings.override(table_of(recipe, name), words).get("phase", [])
    return phases if isinstance(phases, list) and all(isinstance(phase, dict) for phase in phases) else []


def _of_phases(phases: list[dict[str, Any]], keywords: Mapping[str, object]) -> Iterator[str]:
    """Yield words that change the only phase, or that share the total `steps` out among several phases."""
    for key, value in keywords.items():
        if key == "steps" and phases and all(_is_count(phase.get("steps")) for phase in phases):
            yield from _shared_out(phases, value, keep="warmup" in keywords)
        elif len(phases) < 2:
            yield f"phase.{key}={settings.literal(value)}"
            for replaced in {"steps": ("epochs", "max_steps"), "epochs": ("steps",)}.get(key, ()):
                if any(phase.get(replaced) for phase in phases) and replaced not in keywords:
                    yield f"phase.{replaced}=0"
        else:
            wanted = f'{{"phase[1].{key}": ...}} for one of them, or {{"phase.{key}": ...}} for all'
            raise RecipeError(key, f"found with {len(phases)} phases", wanted)


def _shared_out(phases: list[dict[str, Any]], steps: object, *, keep: bool) -> Iterator[str]:
    """Yield words that share `steps` out among the phases in proportion to their present steps.

    Warm-ups and schedules that are counted in steps are scaled likewise.
    """
    if not _is_count(steps) or steps < len(phases):
        least = f"{len(phases)} or more" + (": at least one per phase" if phases[1:] else "")
        raise RecipeError("steps", f"found {steps!r}", f"a whole number, {least}")
    steps, counts = int(steps), [phase["steps"] for phase in phases]
    parts = [max(1, steps * count // sum(counts)) for count in counts]
    parts[parts.index(max(parts))] += max(0, steps - sum(parts))
    while sum(parts) > steps:  # the minimum of one step per phase can exceed the total
        parts[parts.index(max(parts))] -= 1
    for number, (phase, part, count) in enumerate(zip(phases, parts, counts, strict=True), 1):
        yield f"phase[{number}].steps={part}"
        warmup, schedule, longest = phase.get("warmup", 0), phase.get("schedule"), part
        if isinstance(schedule, Mapping) and _is_count(over := schedule.get("over")):
            longest = max(1, round(int(over) * part / count))
            yield f"phase[{number}].schedule.over={longest}"
        if isinstance(warmup, int | float) and warmup >= 1 and not keep:  # other types raise an error later
            yield f"phase[{number}].warmup={max(1, min(longest, round(warmup * part / count)))}"


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0
