"""Sending runs to an experiment tracker (menu `trackers`), afterwards or while they run.

`sent.json` in a run's folder records what was sent, so that sending again only adds new steps.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import math
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ordsmed.base import files, menu
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError, nearest
from ordsmed.base.say import many, say
from ordsmed.tell.report import content, folders

MENU = "trackers"
NOTE = "sent.json"
TAGS = {
    "loss": "training/loss",
    "rate": "training/rate",
    "norm": "training/norm",
    "scale": "training/scale",
    "tokens_per_second": "speed/tokens_per_second",
}


@dataclass(frozen=True)
class Sending:
    """A run as trackers receive it."""

    project: str
    name: str
    key: str  # identifies the run when it is sent again
    settings: Mapping[str, str]
    began: float
    last: int  # the last step that was sent before
    offline: Path | None  # folder for a tracker that writes files instead of sending


class RunTracker(Protocol):
    """Interface of `Tracker(sending)` in each file of the menu."""

    def log(self, step: int, numbers: Mapping[str, float], at: float) -> None:
        """Log the numbers of a step, and its time in seconds since 1970."""

    def end(self, scores: Mapping[str, float], state: str) -> None:
        """Log the final scores and the state of the run: done, stopped, failed or still running."""


def imported(name: str, package: str) -> ModuleType:
    """Import a tracker's package, which ordsmed does not install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or "").partition(".")[0] == package
        problem = f"{package} is not installed here" if missing else f"{package} cannot be imported: {error}"
        raise RecipeError(
            f"--to {package}", problem, "", f"`pip install {package}`, then run the same command"
        ) from None


def check(kind: str) -> None:
    if kind not in menu.entries(MENU):
        raise RecipeError(f"--to {kind}", "no such tracker", "", nearest(kind, menu.entries(MENU)))


def send(names: Sequence[str], kind: str, *, project: str = "ordsmed", offline: str | None = None) -> list[str]:
    """Send all runs of these folders that have steps, and return a line each."""
    check(kind)
    runs = [run for run in folders.read(folders.find(names)) if run["course"] and run["course"]["steps"]]
    if not runs:
        raise RecipeError(" ".join(names), "no run there has written a step", "a run with steps")
    path = Path(offline) if offline else None
    if path:
        with files.survive_disk(path):
            path.mkdir(parents=True, exist_ok=True)
    lines = [_send(run, kind, project, path) for run in runs]
    return [*lines, menu.import_choice(MENU, kind).LATER.format(path)] if path else lines


def _send(run: Mapping[str, Any], kind: str, project: str, offline: Path | None) -> str:
    folder = Path(run["folder"])
    target = f"{kind} {offline.resolve() if offline else project}"
    notes = _notes(folder)
    note = notes.get(target, {})
    last = int(note.get("step", 0))
    under_way, scores = run["state"] == "running", _scores(run)
    all_steps = steps(folder / folders.METRICS, run["began"] or 0.0, under_way)
    numbers = (entry for entry in all_steps if entry[0] > last)
    first, end = next(numbers, None), {"state": run["state"], "scores": scores}
    if first is None and note.get("end") == end:
        return f"{folder}: nothing new for {kind} since step {last:,}"
    key, name = note.get("key") or uuid.uuid4().hex[:16], note.get("name") or run["name"]
    settings = {name: value if isinstance(value, str) else json.dumps(value) for name, value in run["recipe"].items()}
    sending = Sending(project, name, key, settings, run["began"] or 0.0, last, offline)
    note = {"key": key, "name": name, "step": last}
    _note(folder, {**notes, target: note})  # so that it is not created twice
    count = 0
    try:
        with contextlib.redirect_stdout(sys.stderr):  # messages of the tracker
            tracker: RunTracker = menu.import_choice(MENU, kind).Tracker(sending)
            for step, values, at in itertools.chain([first] if first else [], numbers):
                tracker.log(step, values, at)
                last, count = step, count + 1
            tracker.end(scores, run["state"])
    except OrdsmedError:
        raise
    except Exception as error:  # trackers raise anything; the last line is the most useful
        lines = str(error).strip().splitlines() or [""]
        raise RunError(
            f"{folder}: {kind}",
            f"{type(error).__name__}: {lines[-1][:300]}",
            "",
            "check its address and login, then run the same command",
        ) from error
    _note(folder, {**notes, target: {**note, "step": last, "end": end}})
    return f"{folder}: {many(count, 'step')} sent to {kind}, up to step {last:,}" + (
        f", in {offline}" if offline else ""
    )


def steps(path: Path, began: float, under_way: bool = False) -> Iterator[tuple[int, dict[str, float], float]]:
    """Yield each step's numbers, including its validation, and its time.

    `under_way` leaves out the last step, whose validation may still come.
    """
    step, numbers, at = 0, dict[str, float](), began
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text)
                number = int(line["step"])
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue  # cut off or damaged
            if number != step and numbers:
                yield step, numbers, at
                numbers = {}
            step = number
            if "validation" in line:
                named = ((f"validation/{key}", value) for key, value in line.items() if key not in ("step", "phase"))
            else:
                named = ((tag, line.get(key)) for key, tag in TAGS.items())
            numbers |= {tag: value for tag, raw in named if (value := _finite(raw)) is not None}
            at += _finite(line.get("seconds")) or 0.0
    if numbers and not under_way:
        yield step, numbers, at


def _finite(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _scores(run: Mapping[str, Any]) -> dict[str, float]:
    scores = (run["scores"] or {}).get("found", {})
    return {f"scores/{key}": float(value) for key, value in scores.items() if key not in content.NO_SCORES}


def _notes(folder: Path) -> dict[str, Any]:
    try:
        notes = files.read_table(folder / NOTE) if (folder / NOTE).exists() else {}
    except OrdsmedError:
        return {}
    return {key: note for key, note in notes.items() if isinstance(note, dict) and isinstance(note.get("step"), int)}


def _note(folder: Path, notes: Mapping[str, Any]) -> None:
    try:
        files.write_json(folder / NOTE, notes)
    except OrdsmedError as error:
        say(f"{error}; the next time everything is sent again")
