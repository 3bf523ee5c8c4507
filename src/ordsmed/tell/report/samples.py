"""Samples: what a pretrained model predicts for three held-out sentences, at its first, middle and last weights.

They are computed once, when a report is made of a single run, and stored in its folder:

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
from ordsmed.weights import example_sentences
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model

NAME = "samples.jsonl"
SENTENCES = 3
LARGEST = 60_000_000  # maximum number of parameters, so that samples take seconds


class SampleAnswer(msgspec.Struct):
    step: int
    text: str


class Sample(msgspec.Struct):
    text: str
    right: str
    says: Annotated[list[SampleAnswer], msgspec.Meta(min_length=1)]


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the stored samples; none if the file is damaged."""
    try:
        rows = [values.clean(line) for line in files.read_lines(folder / NAME)]
        msgspec.convert(rows, list[Sample])
    except (OrdsmedError, OSError, msgspec.ValidationError):
        return []
    return rows


def ask(folder: Path, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stored samples if they are of the run's final weights, otherwise new ones."""
    stored = read(folder)
    last = run["scores"].get("found", {}).get("step", run["course"]["step"] if run["course"] else None)
    if stored and all(row["says"][-1].get("step") == last for row in stored):
        return stored
    finished = run["kind"] == "pretrain" and run["state"] == "done" and (folder / "weights").is_dir()
    if not finished or not run["parameters"] or run["parameters"] > LARGEST:
        return stored
    try:
        rows = _sampled(folder)
    except (OrdsmedError, OSError) as error:
        say(f"{folder}: no samples: {error}")
        return stored
    with contextlib.suppress(OSError, OrdsmedError):  # in a read-only folder they are computed again next time
        files.write_text(folder / NAME, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return rows


def _sampled(folder: Path) -> list[dict[str, Any]]:
    origin = Origin.of(folder)
    rows: list[dict[str, Any]] = []
    last = origin.last()
    for step in three([step for step in origin.steps() if last is None or step <= last]):
        try:
            trained = open_model(origin, step)
        except OrdsmedError:  # step 0 is rebuilt from its seed and data, which may be gone
            continue
        rows = rows or [
            {**sentence, "says": []} for sentence in example_sentences.sentences(origin, trained, SENTENCES)
        ]
        for row in rows:
            row["says"].append({"step": step, "text": _prediction(trained, row["text"])})
    return rows


def three(steps: list[int]) -> list[int]:
    middle = min(steps, key=lambda step: abs(step - steps[-1] / 2), default=0)
    return sorted({*steps[:1], middle, *steps[-1:]})


def _prediction(trained: Trained, text: str) -> str:
    if trained.continues:
        options = SamplingOptions(tokens=12, temperature=0.7, seed=1)
        return next(iter(generate.generate_all(writing(trained), [text], options))).continuation
    return " · ".join(f"{guess.text} {guess.probability:.1%}" for guess in fill.fill(trained, text, 3).masks[0])
