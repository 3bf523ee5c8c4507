"""Samples: what a pretrained model says of three held-out sentences, as it began, half way and in the end.

They are asked once, of the weights that stand, when a report is made of that run alone, and kept in its folder:

    samples.jsonl   {"text": "det er [MASK] bra", "right": "veldig", "says": [{"step": 0, "text": "hus 0.1% · ..."}]}
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ordsmed.base import files
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.say import say
from ordsmed.tell.report import values
from ordsmed.use import fill, generate
from ordsmed.use.generation.network import writing
from ordsmed.use.generation.options import SamplingOptions
from ordsmed.weights import held_out
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained import Trained, open_model

NAME = "samples.jsonl"
SENTENCES = 3
LARGEST = 60_000_000  # parameters of networks that are asked: it takes seconds


class SampleAnswer(msgspec.Struct):
    """What a step says of it."""

    step: int
    text: str


class Sample(msgspec.Struct):
    """A line of the file."""

    text: str
    right: str
    says: Annotated[list[SampleAnswer], msgspec.Meta(min_length=1)]


def read(folder: Path) -> list[dict[str, Any]]:
    """Those that are kept; a file that is damaged is left alone."""
    try:
        rows = [values.clean(line) for line in files.read_lines(folder / NAME)]
        msgspec.convert(rows, list[Sample])
    except (OrdsmedError, OSError, msgspec.ValidationError):
        return []
    return rows


def ask(folder: Path, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stored samples if they are of the weights that the run left, else new ones."""
    kept = read(folder)
    last = run["scores"].get("found", {}).get("step", run["course"]["step"] if run["course"] else None)
    if kept and all(row["says"][-1].get("step") == last for row in kept):
        return kept
    whole = run["kind"] == "pretrain" and run["state"] == "done" and (folder / "weights").is_dir()
    if not whole or not run["parameters"] or run["parameters"] > LARGEST:
        return kept
    try:
        rows = _asked(folder)
    except (OrdsmedError, OSError) as error:
        say(f"{folder}: no samples of what it says: {error}")
        return kept
    with contextlib.suppress(OSError, OrdsmedError):  # a folder that may only be read is asked again next time
        files.write_text(folder / NAME, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return rows


def _asked(folder: Path) -> list[dict[str, Any]]:
    """A row a sentence."""
    origin = Origin.of(folder)
    rows: list[dict[str, Any]] = []
    left = origin.last()
    for step in three([step for step in origin.steps() if left is None or step <= left]):
        try:
            trained = open_model(origin, step)
        except OrdsmedError:  # step 0 comes again from its seed and data, if these still stand
            continue
        rows = rows or [{**sentence, "says": []} for sentence in held_out.sentences(origin, trained, SENTENCES)]
        for row in rows:
            row["says"].append({"step": step, "text": _said(trained, row["text"])})
    return rows


def three(steps: list[int]) -> list[int]:
    """The first, that nearest the middle, and the last of the steps whose weights stand."""
    middle = min(steps, key=lambda step: abs(step - steps[-1] / 2), default=0)
    return sorted({*steps[:1], middle, *steps[-1:]})


def _said(trained: Trained, text: str) -> str:
    """The three best guesses, or the next words."""
    if trained.continues:
        how = SamplingOptions(tokens=12, temperature=0.7, seed=1)
        return next(iter(generate.generate_all(writing(trained), [text], how))).continuation
    return " · ".join(f"{guess.text} {guess.probability:.1%}" for guess in fill.fill(trained, text, 3).masks[0])
