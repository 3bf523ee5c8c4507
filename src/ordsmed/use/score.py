"""Score a file of predictions, written by any program, with the official metrics of its task."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.base.menu import entries, load
from ordsmed.base.say import many, say
from ordsmed.text.labelled import glue
from ordsmed.text.labelled.questions import VERSIONS

if TYPE_CHECKING:
    from ordsmed.learn.task import TaskSettings


def score(name: str, data: Sequence[str], predictions: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the scores of a task's predictions.

    `name` is squad-1.1, squad-2.0, the name of a GLUE task, or a kind of tasks/ with its settings in `overrides`.
    """
    if Path(predictions).is_dir():
        inside = ", ".join(sorted(path.name for path in Path(predictions).iterdir() if path.is_file())[:5])
        raise RecipeError(predictions, f"is a folder ({inside})", "a file of predictions", "name the file")
    kind, table = _named(name)
    table = settings.override({"task": table}, overrides)["task"]
    task = settings.decode(load("tasks", kind), table, name)
    if not getattr(task, "labels", True):
        task = task.complete(task.records(tuple(data), learning=True))
    records = task.records(tuple(data))
    scores: dict[str, Any] = task.score(records, task.read(Path(predictions), records))
    if not scores:
        raise RecipeError(", ".join(data), "has no labels", "labeled files")
    say(scored_line(task, records))
    return scores


def scored_line(task: TaskSettings, records: Sized) -> str:
    """Return a line on how many of the records are scored: those whose right answer is known."""
    scored, count = task.count_scored(records), len(records)
    without = f" of {count:,}; the right answer of the others is not known" if scored < count else ""
    return f"scored: {many(scored, 'record')}{without}"


def names() -> list[str]:
    return [*VERSIONS, *glue.KNOWN, *entries("tasks")]


def _named(name: str) -> tuple[str, dict[str, Any]]:
    """Return the task kind that a name belongs to, and the settings that the name implies."""
    if name in entries("tasks"):
        return name, {}
    for kind in entries("tasks"):
        if (table := load("tasks", kind).named(name)) is not None:
            return kind, table
    raise RecipeError(f"`{name}`", "is not a task that can be scored", "", nearest(name, names()))
