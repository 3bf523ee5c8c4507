"""Predict files with a fine-tuned model, and score the predictions.

run or folder -> Asked (task, settings, tokenizer)
files -> records -> features -> answers -> predictions -> OUT/
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ordsmed.base import files, settings
from ordsmed.base.errors import DataError, RecipeError, meant
from ordsmed.base.menu import entries, kind_of, load
from ordsmed.base.run import Run, in_start_folder
from ordsmed.base.say import Progress, many, say
from ordsmed.base.screen import command, html_table, table
from ordsmed.data.features import Features, Packing
from ordsmed.data.pieces import TextReader
from ordsmed.data.unknown import MOST
from ordsmed.learn.inference import predict_all
from ordsmed.learn.score.squad import written
from ordsmed.learn.task import Arrays, Task, no_better, packing, reader
from ordsmed.train.scores import read_scores
from ordsmed.use.score import scored_line
from ordsmed.weights.trained_model import Trained, opened


@dataclass(frozen=True)
class Asked:
    """A fine-tuned model with the settings of its task."""

    trained: Trained
    task: Task
    settings: Any  # of the task

    @functools.cached_property
    def reader(self) -> TextReader:
        return reader(self.trained.tokenizer, self.trained.settings)

    @functools.cached_property
    def packing(self) -> Packing:
        return packing(self.trained.tokenizer, self.trained.settings)

    def answers(self, features: Features, **options: Any) -> tuple[Arrays, dict[str, float]]:
        """Return the task's outputs for the examples, and the mean losses if they have labels."""
        return predict_all(self.task, features, self.packing, self.trained.ranks, within=self.trained.within, **options)


class Predicted(NamedTuple):
    folder: Path
    scores: dict[str, float]  # empty if not requested, or without labels
    lines: list[str]  # for the terminal


class Evaluated(NamedTuple):
    scores: dict[str, Any]  # those of a probe include errors and descriptions
    lines: list[str]  # for the terminal

    def _repr_html_(self) -> str:
        rows = [
            [result.get("model", ""), name, *(written(name, of.get(name, "")) for of in (result, errors, guessing))]
            for result in self.scores.get("results", [self.scores])
            for errors, guessing in [[result.get(key, {}) for key in ("errors", "guessing")]]
            for name, value in result.items()
            if isinstance(value, float)
        ]
        return html_table(rows, ("model", "score", "result", "± error", "guessing"))


@dataclass(frozen=True)
class Classified:
    """A text with its predicted class, or its predicted number in a regression."""

    text: str
    label: str | None
    probability: float | None = None  # of that class
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of all classes
    number: float | None = None


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence, each with its predicted tag."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # one per tag


def open_task(path: Trained | str | Path, overrides: Sequence[str] = (), *, verb: str = "", **options: Any) -> Asked:
    """Open the fine-tuned model of a run, weights or a Hugging Face folder. `options` goes to trained.opened."""
    return task_model(opened(path, **options), overrides, verb=verb, name="" if isinstance(path, Trained) else path)


def task_model(trained: Trained, overrides: Sequence[str] = (), *, verb: str = "", name: object = "") -> Asked:
    """Return an opened model for `verb`, or raise an error if it was not fine-tuned for that.

    `overrides` change settings of its task.
    """
    location = name or trained.folder
    trained.check_heads()
    if not isinstance(trained.objective, Task):
        by = Run(trained.folder).status.get("verb", "")
        problem = f"is a run of `ordsmed {by}`" if by else "has no task head"
        remedy = "fine-tune it with `ordsmed finetune`; or evaluate any language model with --probe NAME FILE"
        raise RecipeError(location, problem, "a fine-tuned model", remedy)
    if verb and verb not in getattr(trained.learned, "VERBS", ()):
        wanted = [kind for kind in entries("tasks") if verb in load("tasks", kind).VERBS]
        raise RecipeError(location, f"was fine-tuned for {kind_of(trained.learned)}", " or ".join(wanted))
    changed = _changed(trained.learned, overrides)
    if changed.length > trained.settings.longest():
        problem = f"found {changed.length}, more than the model's {trained.settings.longest()} positions"
        raise RecipeError("task.length", problem, "", f"use task.length={trained.settings.longest()}")
    trained.objective.update_settings(changed)
    return Asked(trained, trained.objective, changed)


def classified(trained: Trained, texts: Sequence[str], seconds: Sequence[str] = ()) -> list[Classified]:
    model = task_model(trained)
    records = model.settings.about(texts, seconds)
    if not texts:
        return []
    predictions = _predictions(model, records)
    probabilities = predictions.shares.tolist() if predictions.shares is not None else [()] * len(records)
    labels = model.task.labels
    return [
        Classified(text, None, number=answer)
        if model.task.number
        else Classified(text, answer, max(row), probabilities=dict(zip(labels, row, strict=True)))
        for text, answer, row in zip(texts, predictions.values, probabilities, strict=True)
    ]


def tagged(trained: Trained, sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    model = task_model(trained)
    if not any(sentences):
        return [Tagged((), (), ()) for _ in sentences]
    predictions = _predictions(model, model.settings.about(sentences))
    probabilities = iter(predictions.probability.tolist())
    return [
        Tagged(tuple(words), tuple(tags), tuple(next(probabilities) for _ in words))
        for words, tags in zip(sentences, predictions.tags, strict=True)
    ]


def _predictions(model: Asked, records: Any) -> Any:
    features = model.settings.features(records, model.reader)
    return model.settings.predictions(records, features, model.answers(features)[0])


def free(out: str | Path, *, anew: bool) -> Path:
    """Return the folder to write predictions to, or raise an error if it exists or is not a valid name."""
    target = Path(out)
    if re.fullmatch(r"\w+=[^/]*", target.name):
        raise RecipeError(out, "is not an output folder", "RUN FILE... OUT", "settings are written task.key=value")
    if target.exists() and not anew:
        remedy = "name another, or add --anew, which moves this one aside"
        raise RecipeError(target, "already exists", "a new folder", remedy)
    return target


def predict(
    path: Trained | str | Path,
    sources: Sequence[str],
    out: str | Path,
    overrides: Sequence[str] = (),
    *,
    anew: bool = False,
    scores: bool = False,
    **options: Any,
) -> Predicted:
    """Write the predictions for files to a folder, with their scores if `scores` is set."""
    target = free(out, anew=anew)
    model = open_task(path, overrides, **options)
    records, predictions, facts, loss = _predicted(model, sources, scores=scores)
    if scores and not facts:
        say(f"{', '.join(sources)}: no labels, so nothing is scored")
    with files.making(target, keep=True) as folder:
        written = [path_written.name for path_written in model.settings.write(folder, records, predictions)]
        if facts:
            losses = {} if loss is None else {"validation": loss}  # the key that a training writes
            files.write_json(folder / "scores.json", losses | facts)
    lines = [f"{target}: {', '.join(written)} of {many(len(records), 'record')}"]
    lines += [f"  {scored_line(model.settings, records)}", *_lines(facts)] if facts else []
    return Predicted(target, facts, lines)


def evaluate(
    path: Trained | str | Path,
    sources: Sequence[str] = (),
    overrides: Sequence[str] = (),
    *,
    max_unknown: float = MOST,
    **options: Any,
) -> Evaluated:
    """Return the scores of a model on labeled files, by default on the dev files of its run."""
    model = open_task(path, overrides, **options)
    named = [s for s in sources if s]
    chosen = named or list(model.settings.paths("dev"))
    if not chosen:
        raise RecipeError(model.trained.folder, "names no dev files", "files to evaluate on", "name them after the run")
    if not named:
        chosen = _dev_files(model.trained.folder, chosen)
    with (
        contextlib.nullcontext() if named else in_start_folder(model.trained.folder)
    ):  # a run's paths are relative to it
        records, predictions, facts, loss = _predicted(model, chosen, scores=True, max_unknown=max_unknown)
    if not facts:
        raise RecipeError(", ".join(chosen), "has no labels", "labeled files", "`ordsmed predict` needs no labels")
    guessing, counted = ({} if named else _baseline(model.trained.folder, of) for of in ("guessing", "word_counts"))
    pool = getattr(model.settings, "pool", None)
    worse = [line] if (line := no_better(model.settings.record, facts, guessing, counted, pool)) else []
    facts = {"loss": loss, **facts} if loss is not None else facts
    lines = [f"  {scored_line(model.settings, records)}", *_lines(facts)]
    return Evaluated(facts, [*lines, *worse, *_tables(model.settings.details(records, predictions))])


def _baseline(folder: Path, name: str) -> dict[str, float]:
    """Return the scores of a baseline on the dev files of a run, or an empty dict."""
    return dict(read_scores(folder).get(name, {})) if (folder / "scores.json").is_file() else {}


def _dev_files(folder: Path, paths: list[str]) -> list[str]:
    """Return the paths of a run's dev files: in the folder that has its `work/`, or where the run began."""
    run = Run(folder)
    homes = [home for home in (run.home, run.status.get("stood_in")) if home]
    for number, home in enumerate(homes):
        if all((Path(home) / path).exists() for path in paths):
            if number:
                say(f"{folder}: scored on the dev files in {home}, where the run began")
            return [str(Path(home) / path) for path in paths] if number else paths
    absent = [path for path in paths if not any((Path(home) / path).exists() for home in homes or [Path()])]
    if not absent or any(glob.has_magic(path) for path in paths):
        return paths
    problem = f"its dev file {absent[0]} is neither next to it nor where the run began"
    raise DataError(folder, problem, "files to evaluate on", f"name them: `{command('evaluate', folder)} FILE`")


def _predicted(
    model: Asked, sources: Sequence[str], *, scores: bool, max_unknown: float = 1.0
) -> tuple[Any, Any, dict[str, float], float | None]:
    records = model.settings.records(tuple(sources))
    features = model.settings.features(records, model.reader)
    model.reader.unknown.check(", ".join(sources), max_unknown, "--max-unknown ")
    if not scores:  # without labels, no loss is computed
        features = dataclasses.replace(features, labels=None)
    with Progress("predict", len(features), "examples", every=30) as shown:
        answers, means = model.answers(features, done=shown.add)
    predictions = model.settings.predictions(records, features, answers)
    scored: dict[str, float] = model.settings.score(records, predictions) if scores else {}
    weights = model.task.weights
    loss = sum(weight * means[term] for term, weight in weights.items() if term in means) if means and scored else None
    return records, predictions, scored, loss


def _changed(task: Any, overrides: Sequence[str]) -> Any:
    """Return a task's settings with `task.key=value` words applied. A fixed setting may only be given its old value."""
    if not overrides:
        return task
    learned = settings.plain(task)
    changed = settings.override({"task": settings.plain(task)}, overrides)["task"]
    for word in overrides:
        key = word.partition("=")[0].split(".")[1]
        if key not in task.LATER and (key not in learned or changed[key] != learned[key]):
            known = key in {field.name for field in dataclasses.fields(task)}
            problem = "cannot change after training" if known else "unknown setting"
            raise RecipeError(f"`{word}`", problem, f"one of {', '.join(task.LATER)}", meant(key, task.LATER))
    return settings.decode(type(task), {k: v for k, v in changed.items() if k != "kind"}, "task")


def _lines(facts: dict[str, Any]) -> list[str]:
    return [f"  {name}: {written(name, value)}" for name, value in facts.items()]


def _tables(tables: list[tuple[str, list[str], list[list[Any]]]]) -> list[str]:
    lines: list[str] = []
    for title, head, rows in tables:
        cells = [[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]
        lines += ["", title, *table([head, *cells], numbers=True)]
    return lines
