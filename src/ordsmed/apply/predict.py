"""Predict and evaluate: what a fine-tuned model says of files of its task, in the files people expect, and its scores.

run or folder -> Asked (task, settings, tokenizer)      files -> records -> features -> answers -> predictions -> out/
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ordsmed.apply.trained import Trained, open_model
from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.machine import slower_in
from ordsmed.base.menu import kind_of
from ordsmed.base.ranks import Ranks, prepare
from ordsmed.base.run import Run, at_home
from ordsmed.base.say import Progress, many, say
from ordsmed.base.screen import command, table
from ordsmed.data.features import Features, Packing
from ordsmed.data.pieces import TextReader
from ordsmed.learn.inference import predict_all
from ordsmed.learn.task import Arrays, Task, packing, reader
from ordsmed.score.squad import written

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Asked:
    """A fine-tuned model, ready to be asked."""

    trained: Trained
    task: Task
    settings: Any  # the task's
    ranks: Ranks
    precision: str = "fp32"

    @functools.cached_property
    def reader(self) -> TextReader:
        """How it reads texts."""
        return reader(self.trained.tokenizer, self.trained.settings)

    @functools.cached_property
    def packing(self) -> Packing:
        """How its examples become rows."""
        return packing(self.trained.tokenizer, self.trained.settings)

    def answers(self, features: Features, **how: Any) -> tuple[Arrays, dict[str, float]]:
        """What the task tells of examples, and its mean losses where what is right is known."""
        return predict_all(self.task, features, self.packing, self.ranks, within=self.within, **how)

    def within(self) -> Any:
        """In which numbers products are made."""
        if self.precision in HALVES:
            return torch.autocast(self.ranks.device.type, HALVES[self.precision])
        return contextlib.nullcontext()


def open_task(
    path: str | Path, overrides: Sequence[str] = (), *, step: int | None = None, device: str = "auto",
    threads: int | None = None, precision: str = "fp32", kind: str = "",
) -> Asked:  # fmt: skip
    """The fine-tuned model of a run, its weights or a Hugging Face folder; overrides are of its task's settings."""
    if precision not in ("fp32", *HALVES):
        raise RecipeError(
            "--precision", f"found {precision}", f"fp32 or {' or '.join(HALVES)}", meant(precision, HALVES)
        )
    trained = open_model(path, step)
    if not isinstance(trained.objective, Task):
        verb = Run(trained.folder).status.get("verb", "")
        found = f"is the run of a `{verb}`" if verb else "holds no head of a task"
        raise RecipeError(path, found, "a fine-tuned model", "`ordsmed finetune` makes one")
    if kind and kind_of(trained.learned) != kind:
        raise RecipeError(path, f"was fine-tuned for {kind_of(trained.learned)}", kind)
    changed = _changed(trained.learned, overrides)
    if changed.length > trained.settings.longest():
        found = f"found {changed.length}, more than the model's {trained.settings.longest()} positions"
        raise RecipeError("task.length", found, "", f"use task.length={trained.settings.longest()}")
    trained.objective.update_settings(changed)
    ranks = prepare(device, threads, flags=True)
    trained.objective.to(ranks.device).eval()
    if times := slower_in(precision, ranks.device):
        say(f"--precision: products in {precision} take {times:.3g} times as long as in fp32 here")
    return Asked(trained, trained.objective, changed, ranks, precision)


def predict(
    path: str | Path, sources: Sequence[str], out: str | Path, overrides: Sequence[str] = (), *, anew: bool = False,
    scores: bool = False, **how: Any,
) -> list[str]:  # fmt: skip
    """Write what a model predicts of files, with their scores if so wanted; lines that tell of it."""
    target = Path(out)
    if re.fullmatch(r"\w+=[^/]*", target.name):
        raise RecipeError(out, "is no folder to write to", "RUN FILE... OUT", "settings are written task.key=value")
    if target.exists() and not anew:
        raise RecipeError(target, "stands", "a new folder", "name another, or add --anew to replace it")
    asked = open_task(path, overrides, **how)
    records, predictions, facts, _ = _predicted(asked, sources, scores=scores)
    if scores and not facts:
        say(f"{', '.join(sources)}: no right answers in there, so nothing is scored")
    with files.making(target) as folder:
        written = [made.name for made in asked.settings.write(folder, records, predictions)]
        if facts:
            files.write_json(folder / "scores.json", facts)
    return [f"{target}: {', '.join(written)} of {many(len(records), 'record')}", *_lines(facts)]


def evaluate(
    path: str | Path, sources: Sequence[str] = (), overrides: Sequence[str] = (), **how: Any
) -> tuple[dict[str, Any], list[str]]:
    """The scores of a model on files, or on those it was judged by; with lines that tell of them."""
    asked = open_task(path, overrides, **how)
    named = [s for s in sources if s]
    chosen = named or list(asked.settings.paths("dev"))
    if not chosen:
        raise RecipeError(path, "names no dev files", "files to validate on", "name them behind the run")
    if not named:
        chosen = _own_files(asked.trained.folder, chosen)
    with contextlib.nullcontext() if named else at_home(asked.trained.folder):  # its own are named from there
        records, predictions, facts, loss = _predicted(asked, chosen, scores=True)
    if not facts:
        raise RecipeError(
            ", ".join(chosen), "do not say what is right", "labelled files", "`ordsmed predict` needs none"
        )
    facts = {"loss": loss, **facts} if loss is not None else facts
    return facts, [*_lines(facts), *_tables(asked.settings.details(records, predictions))]


def _own_files(folder: Path, paths: list[str]) -> list[str]:
    """A run's dev files: beside its `work/`, or, where that was moved alone, where the run began."""
    place = Run(folder)
    homes = [home for home in (place.home, place.status.get("stood_in")) if home]
    for number, home in enumerate(homes):
        if all((Path(home) / path).exists() for path in paths):
            if number:
                say(f"{folder}: scored on the dev files in {home}, where it began")
            return [str(Path(home) / path) for path in paths] if number else paths
    absent = [path for path in paths if not any((Path(home) / path).exists() for home in homes or [Path()])]
    if not absent or any(glob.has_magic(path) for path in paths):
        return paths
    found = f"its dev file {absent[0]} stands neither beside it nor where it began"
    raise DataError(folder, found, "files to validate on", f"name them: `{command('evaluate', folder)} FILE`")


def _predicted(
    asked: Asked, sources: Sequence[str], *, scores: bool
) -> tuple[Any, Any, dict[str, float], float | None]:
    """Records, predictions, scores and loss."""
    records = asked.settings.records(tuple(sources))
    features = asked.settings.features(records, asked.reader)
    if not scores:  # nothing is computed of what may not be known
        features = dataclasses.replace(features, labels=None)
    with Progress("predict", len(features), "examples", every=30) as shown:
        answers, means = asked.answers(features, each=shown.add)
    predictions = asked.settings.predictions(records, features, answers)
    found: dict[str, float] = asked.settings.score(records, predictions) if scores else {}
    weights = asked.task.weights
    loss = sum(weight * means[term] for term, weight in weights.items() if term in means) if means and found else None
    return records, predictions, found, loss


def _changed(task: Any, overrides: Sequence[str]) -> Any:
    """A task's settings with `task.key=value` words applied."""
    if not overrides:
        return task
    for word in overrides:
        key = word.partition("=")[0].split(".")[1]
        if key not in task.LATER:
            known = key in {field.name for field in dataclasses.fields(task)}
            found = "cannot change once it has learned" if known else "unknown setting"
            raise RecipeError(f"`{word}`", found, f"one of {', '.join(task.LATER)}", meant(key, task.LATER))
    changed = settings.override({"task": settings.plain(task)}, overrides)["task"]
    return settings.decode(type(task), {k: v for k, v in changed.items() if k != "kind"}, "task")


def _lines(facts: dict[str, Any]) -> list[str]:
    return [f"  {name}: {written(name, value)}" for name, value in facts.items()]


def _tables(tables: list[tuple[str, list[str], list[list[Any]]]]) -> list[str]:
    """Tables as text, columns aligned."""
    lines: list[str] = []
    for title, head, rows in tables:
        cells = [[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]
        lines += ["", title, *table([head, *cells], numbers=True)]
    return lines
