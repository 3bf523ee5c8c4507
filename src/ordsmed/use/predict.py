"""Predict and evaluate: what a fine-tuned model says of files of its task, in the files people expect, and its scores.

run or folder -> Asked (task, settings, tokenizer)      files -> records -> features -> answers -> predictions -> out/
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
from ordsmed.base.run import Run, at_home
from ordsmed.base.say import Progress, many, say
from ordsmed.base.screen import command, html_table, table
from ordsmed.data.features import Features, Packing
from ordsmed.data.pieces import TextReader
from ordsmed.data.unknown import MOST
from ordsmed.learn.inference import predict_all
from ordsmed.learn.score.squad import written
from ordsmed.learn.task import Arrays, Task, no_better, packing, reader
from ordsmed.train.scores import found_in
from ordsmed.use.score import scored_line
from ordsmed.weights.trained import Trained, opened


@dataclass(frozen=True)
class Asked:
    """A fine-tuned model, ready to be asked."""

    trained: Trained
    task: Task
    settings: Any  # the task's

    @functools.cached_property
    def reader(self) -> TextReader:
        return reader(self.trained.tokenizer, self.trained.settings)

    @functools.cached_property
    def packing(self) -> Packing:
        """How its examples become rows."""
        return packing(self.trained.tokenizer, self.trained.settings)

    def answers(self, features: Features, **how: Any) -> tuple[Arrays, dict[str, float]]:
        """What the task tells of examples, and its mean losses where what is right is known."""
        return predict_all(self.task, features, self.packing, self.trained.ranks, within=self.trained.within, **how)


class Predicted(NamedTuple):
    """What was written of files."""

    folder: Path
    scores: dict[str, float]  # empty where none were asked for, or nothing is known to be right
    lines: list[str]  # for people


class Evaluated(NamedTuple):
    """How good a model is."""

    scores: dict[str, Any]  # of a probe with their errors, and of what they are
    lines: list[str]  # for people

    def _repr_html_(self) -> str:
        """A table, for a notebook."""
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
    """A text and its class, or the number that it is given."""

    text: str
    label: str | None
    probability: float | None = None  # of that class
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of all
    number: float | None = None


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence, each with its tag."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # of each of those tags


def open_task(path: Trained | str | Path, overrides: Sequence[str] = (), *, verb: str = "", **how: Any) -> Asked:
    """The fine-tuned model of a run, its weights or a Hugging Face folder; `how` as trained.opened."""
    return asked_of(opened(path, **how), overrides, verb=verb, name="" if isinstance(path, Trained) else path)


def asked_of(trained: Trained, overrides: Sequence[str] = (), *, verb: str = "", name: object = "") -> Asked:
    """A model that learned a task, which this verb opens; overrides are of its settings."""
    place = name or trained.folder
    trained.check_heads()
    if not isinstance(trained.objective, Task):
        by = Run(trained.folder).status.get("verb", "")
        problem = f"is the run of a `{by}`" if by else "holds no head of a task"
        remedy = "`ordsmed finetune` makes one; any language model is evaluated with --probe NAME FILE"
        raise RecipeError(place, problem, "a fine-tuned model", remedy)
    if verb and verb not in getattr(trained.learned, "VERBS", ()):
        wanted = [kind for kind in entries("tasks") if verb in load("tasks", kind).VERBS]
        raise RecipeError(place, f"was fine-tuned for {kind_of(trained.learned)}", " or ".join(wanted))
    changed = _changed(trained.learned, overrides)
    if changed.length > trained.settings.longest():
        problem = f"found {changed.length}, more than the model's {trained.settings.longest()} positions"
        raise RecipeError("task.length", problem, "", f"use task.length={trained.settings.longest()}")
    trained.objective.update_settings(changed)
    return Asked(trained, trained.objective, changed)


def classified(trained: Trained, texts: Sequence[str], seconds: Sequence[str] = ()) -> list[Classified]:
    """The class of each text, or of each pair."""
    model = asked_of(trained)
    records = model.settings.about(texts, seconds)
    if not texts:
        return []
    their = _said(model, records)
    shares = their.shares.tolist() if their.shares is not None else [()] * len(records)
    labels = model.task.labels
    return [
        Classified(text, None, number=answer)
        if model.task.number
        else Classified(text, answer, max(share), probabilities=dict(zip(labels, share, strict=True)))
        for text, answer, share in zip(texts, their.values, shares, strict=True)
    ]


def tagged(trained: Trained, sentences: Sequence[Sequence[str]]) -> list[Tagged]:
    """The tag of each word."""
    model = asked_of(trained)
    if not any(sentences):
        return [Tagged((), (), ()) for _ in sentences]
    their = _said(model, model.settings.about(sentences))
    shares = iter(their.probability.tolist())
    return [
        Tagged(tuple(words), tuple(tags), tuple(next(shares) for _ in words))
        for words, tags in zip(sentences, their.tags, strict=True)
    ]


def _said(model: Asked, records: Any) -> Any:
    """What a model says of records of which nothing is known."""
    features = model.settings.features(records, model.reader)
    return model.settings.predictions(records, features, model.answers(features)[0])


def free(out: str | Path, *, anew: bool) -> Path:
    """The folder for predictions, refused where it is none, or stands."""
    target = Path(out)
    if re.fullmatch(r"\w+=[^/]*", target.name):
        raise RecipeError(out, "is no folder to write to", "RUN FILE... OUT", "settings are written task.key=value")
    if target.exists() and not anew:
        raise RecipeError(target, "stands", "a new folder", "name another, or add --anew: it moves this one aside")
    return target


def predict(
    path: Trained | str | Path, sources: Sequence[str], out: str | Path, overrides: Sequence[str] = (), *,
    anew: bool = False, scores: bool = False, **how: Any,
) -> Predicted:  # fmt: skip
    """Write what a model predicts of files, with their scores if so wanted."""
    target = free(out, anew=anew)
    model = open_task(path, overrides, **how)
    records, predictions, facts, loss = _predicted(model, sources, scores=scores)
    if scores and not facts:
        say(f"{', '.join(sources)}: no right answers in there, so nothing is scored")
    with files.making(target, keep=True) as folder:
        written = [path_written.name for path_written in model.settings.write(folder, records, predictions)]
        if facts:
            judged = {} if loss is None else {"validation": loss}  # by the name that a training's file of them has
            files.write_json(folder / "scores.json", judged | facts)
    lines = [f"{target}: {', '.join(written)} of {many(len(records), 'record')}"]
    lines += [f"  {scored_line(model.settings, records)}", *_lines(facts)] if facts else []
    return Predicted(target, facts, lines)


def evaluate(
    path: Trained | str | Path,
    sources: Sequence[str] = (),
    overrides: Sequence[str] = (),
    *,
    most_unknown: float = MOST,
    **how: Any,
) -> Evaluated:
    """The scores of a model on files, or on those it was judged by."""
    model = open_task(path, overrides, **how)
    named = [s for s in sources if s]
    chosen = named or list(model.settings.paths("dev"))
    if not chosen:
        raise RecipeError(
            model.trained.folder, "names no dev files", "files to validate on", "name them behind the run"
        )
    if not named:
        chosen = _own_files(model.trained.folder, chosen)
    with contextlib.nullcontext() if named else at_home(model.trained.folder):  # its own are named from there
        records, predictions, facts, loss = _predicted(model, chosen, scores=True, most_unknown=most_unknown)
    if not facts:
        raise RecipeError(
            ", ".join(chosen), "do not say what is right", "labelled files", "`ordsmed predict` needs none"
        )
    guessing, counted = ({} if named else _baseline(model.trained.folder, of) for of in ("guessing", "word_counts"))
    pool = getattr(model.settings, "pool", None)
    worse = [line] if (line := no_better(model.settings.record, facts, guessing, counted, pool)) else []
    facts = {"loss": loss, **facts} if loss is not None else facts
    lines = [f"  {scored_line(model.settings, records)}", *_lines(facts)]
    return Evaluated(facts, [*lines, *worse, *_tables(model.settings.details(records, predictions))])


def _baseline(folder: Path, name: str) -> dict[str, float]:
    """Return the scores of a baseline on a run's own dev files, as the run found them."""
    return dict(found_in(folder).get(name, {})) if (folder / "scores.json").is_file() else {}


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
    problem = f"its dev file {absent[0]} stands neither beside it nor where it began"
    raise DataError(folder, problem, "files to validate on", f"name them: `{command('evaluate', folder)} FILE`")


def _predicted(
    model: Asked, sources: Sequence[str], *, scores: bool, most_unknown: float = 1.0
) -> tuple[Any, Any, dict[str, float], float | None]:
    """Records, predictions, scores and loss."""
    records = model.settings.records(tuple(sources))
    features = model.settings.features(records, model.reader)
    model.reader.unknown.check(", ".join(sources), most_unknown, "--most-unknown ")
    if not scores:  # nothing is computed of what may not be known
        features = dataclasses.replace(features, labels=None)
    with Progress("predict", len(features), "examples", every=30) as shown:
        answers, means = model.answers(features, done=shown.add)
    predictions = model.settings.predictions(records, features, answers)
    scored: dict[str, float] = model.settings.score(records, predictions) if scores else {}
    weights = model.task.weights
    loss = sum(weight * means[term] for term, weight in weights.items() if term in means) if means and scored else None
    return records, predictions, scored, loss


def _changed(task: Any, overrides: Sequence[str]) -> Any:
    """A task's settings with `task.key=value` words applied; what cannot change may be said as it is."""
    if not overrides:
        return task
    learned = settings.plain(task)
    changed = settings.override({"task": settings.plain(task)}, overrides)["task"]
    for word in overrides:
        key = word.partition("=")[0].split(".")[1]
        if key not in task.LATER and (key not in learned or changed[key] != learned[key]):
            known = key in {field.name for field in dataclasses.fields(task)}
            problem = "cannot change once it has learned" if known else "unknown setting"
            raise RecipeError(f"`{word}`", problem, f"one of {', '.join(task.LATER)}", meant(key, task.LATER))
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
