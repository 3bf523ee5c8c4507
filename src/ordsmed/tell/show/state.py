"""State of a folder in lines for a person: a run, trials, a study or other outputs; progress comes first."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ordsmed.base import files, run
from ordsmed.base.errors import DataError
from ordsmed.base.folder import RECIPE, STATUS, FolderKind, kind_of_folder
from ordsmed.base.run import Run, is_abandoned
from ordsmed.base.say import duration, many
from ordsmed.base.snapshots import reached
from ordsmed.learn.phases import total
from ordsmed.learn.score.seeds import INFINITE, is_number
from ordsmed.learn.score.squad import written
from ordsmed.train import checkpoint, guard, meters
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.finish import beside, verdict_on, where
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.scores import numbers, read_scores
from ordsmed.weights import probe_results

LAST = 10  # steps of the reported mean loss
# keys of a status that are not shown
INNER = (
    "verb",
    "state",
    "why",
    "fingerprint",
    "began",
    "seconds",
    "parts",
    "checksums",
    "stood_in",
    "folder",
    "groups",
)


Number = Annotated[float, msgspec.Meta(ge=-INFINITE, le=INFINITE)]
Moment = Annotated[float, msgspec.Meta(ge=0, le=9e9)]  # seconds since 1970, in a year of four digits


class LeftOut(msgspec.Struct):
    """A range of steps whose updates were left out."""

    first: int
    last: int
    why: str


class ShownStatus(msgspec.Struct):
    """Fields of a status that are shown or used in computations."""

    state: str = ""
    step: int = 0
    began: Moment | None = None
    seconds: Number | None = None
    training_seconds: Number | None = None
    deadline: Number | None = None
    unigram: Number = 0
    guessing: dict[str, Number] = {}


class TrainingStatus(ShownStatus):
    """Status of a training; `left_out` means something else for a corpus."""

    left_out: list[LeftOut] = []


def lines(folder: Path) -> list[str]:
    status = sound(folder)
    lines = [f"state: {status.get('state')}{_abandoned(folder, status)}"]
    if reason := status.get("why"):
        lines.append(f"why: {reason}")
    kind = kind_of_folder(folder)
    if kind is FolderKind.TRIALS:
        lines += _trials(folder, status)
    elif kind is FolderKind.FINETUNING:
        lines += _fine_tuning(folder, status)
    elif kind is FolderKind.PRETRAINING:
        lines += _pretraining(folder, status)
    elif kind is FolderKind.STABILITY:
        table = folder / "stability.md"
        lines += files.split_lines(table) if table.exists() else []
    else:
        lines += [line for key, value in status.items() if key not in INNER for line in _facts(key, value)]
    pictures = (folder / name for name in ("trials.svg", "loss.svg", "stability.svg"))
    return [
        *lines,
        *probe_results.lines(folder),
        *_times(status),
        *(f"picture: {path}" for path in pictures if path.exists()),
    ]


def _abandoned(folder: Path, status: Mapping[str, Any]) -> str:
    environment = folder / "environment.json"
    if status.get("state") != "running" or not environment.exists():
        return ""
    host = known.get("host") if isinstance(known := files.read_json(environment), dict) else None
    return ", but no process is working on it; run its command again" if is_abandoned(folder, host) else ""


def sound(folder: Path) -> Mapping[str, Any]:
    """Return the status of a folder; raise an error if a value that is shown as a number is none."""
    status = Run(folder).status
    try:
        known = msgspec.convert(status, TrainingStatus if kind_of_folder(folder).run else ShownStatus)
        msgspec.convert({key: status[key] for key in known.guessing if key in status}, dict[str, Number])
    except msgspec.ValidationError as error:
        raise DataError(folder / STATUS, str(error).replace("$.", ""), "", "the file is damaged") from None
    return status


def _guessing(status: Mapping[str, Any]) -> list[str]:
    """Return lines on the loss of guessing by frequency: of the whole loss, otherwise of each term."""
    guessed = status.get("guessing", {})
    if "unigram" in status and ("validation" in guessed or not guessed):
        terms = [value for key, value in status.items() if key != "validation"]
        several = not guessed and status.get("validation", terms[0]) not in terms  # old runs store no losses per term
        scope = " of tokens, not of the whole" if several else ""
        return [f"guessing by frequency: loss {status['unigram']:.4f}{scope}"]
    return [line for term in guessed if (line := beside(term, dict(status)))]


def _pretraining(folder: Path, status: Mapping[str, Any]) -> list[str]:
    lines, metrics = [where(folder)], _metrics(folder)
    finished_step = int(status.get("step", 0)) if status.get("state") == "done" else 0
    recipe = run.read_recipe(Pretraining, folder) if (folder / RECIPE).exists() else None
    losses = verdict_on(recipe, metrics, finished_step) if recipe else None
    if losses and losses.kind != "unknown":
        lines.append(losses.line if status.get("state") == "done" else f"so far {losses.line}")
    training = [line for line in metrics if "validation" not in line][-LAST:]
    if training:
        first, last = training[0]["step"], training[-1]["step"]
        mean = sum(line["loss"] for line in training) / len(training)
        lines.append(f"loss {mean:.4f}, the mean of steps {first:,} to {last:,}")
        lines += _words_seen(folder, training[-1])
    validations = [line for line in metrics if "validation" in line]
    for line in [*(line for line in validations[:-1] if not line["step"]), *validations[-1:]]:
        when = f"at step {line['step']:,}" if line["step"] else "before the first step"
        lines.append(f"validation {when}: loss {line['validation']:.4f}{_other_terms(line)}")
    lines += _guessing(status)
    if stretches := status.get("left_out"):
        lines.append(
            f"left out: {many(guard.count_skipped(stretches), 'step')} skipped, the last for {stretches[-1]['why']}"
        )
    if status.get("deadline"):
        lines.append(f"deadline {duration(status['deadline'])}: steps were adjusted from {status.get('steps_asked')}")
    return lines


def _words_seen(folder: Path, line: Mapping[str, Any]) -> list[str]:
    if not isinstance(line.get("words"), int):
        return []
    revisions = [name for name, _ in reached(folder / "checkpoints")]
    through = f" to {revisions[-1]} ({many(len(revisions), 'revision')})" if revisions[1:] else ""
    return [f"{line['words']:,} words seen" + (f"; kept: {revisions[0]}{through}" if revisions else "")]


def _other_terms(line: Mapping[str, Any]) -> str:
    terms = {key: value for key, value in line.items() if key not in ("step", "phase", "validation")}
    parts = [
        f"{key.removesuffix('_right')} {value:.1%} right" if key.endswith("_right") else f"{key} {value:.4g}"
        for key, value in terms.items()
        if isinstance(value, float) and value != line["validation"]
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _trials(folder: Path, status: Mapping[str, Any]) -> list[str]:
    statuses = sorted((folder / "trials").glob("*/status.json"))
    done = sum(Run(path.parent).status.get("state") == "done" for path in statuses)
    lines = [f"trials: {done} done of {len(list((folder / 'trials').glob('*.toml')))}"]
    lines += files.split_lines(folder / "trials.md")[2:] if (folder / "trials.md").exists() else []
    return [*_best_scores(folder, status), *lines]


def _best_scores(folder: Path, status: Mapping[str, Any]) -> list[str]:
    if not (folder / "scores.json").exists() or status.get("state") != "done":
        return []
    if status.get("verb") == "pretrain":
        return _guessing(status)
    return _scores(folder)


def _fine_tuning(folder: Path, status: Mapping[str, Any]) -> list[str]:
    recipe, lines = run.read_recipe(Finetuning, folder), _best_scores(folder, status)
    if recipe.examples:
        validations = [line for line in _metrics(folder) if "validation" in line]
        reached = max([0, *checkpoint.steps(folder / "checkpoints"), *(int(line["step"]) for line in validations)])
        lines.append(f"step {reached:,} of {total(recipe.phases):,}")
        best = recipe.best_of(validations)
        for line in validations:
            score = f"{recipe.score} {line[recipe.score]:.2f}, " if recipe.score in line else ""
            mark = "  <- best" if line["step"] == best else ""
            lines.append(f"  step {line['step']:,}: {score}dev loss {line['validation']:.4f}{mark}")
    return lines


def _metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = meters.read(path) if path.exists() else []
    for number, line in enumerate(lines, 1):
        if (
            not isinstance(line, dict)
            or not all(map(_numeric, _required_numbers(line)))
            or not is_number(line.get("step"))
        ):
            raise DataError(path, f"line {number:,} is damaged", "a step and its numbers")
    return lines


def _required_numbers(line: Mapping[str, Any]) -> list[Any]:
    """Return the values that must be numbers; the norm may be null in a skipped step of fp16."""
    return [value for key, value in line.items() if value is not None or key != "norm"]


def _numeric(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scores(folder: Path) -> list[str]:
    """Return the scores with those of guessing, and the verdict if a run learned little."""
    try:
        facts = read_scores(folder)
    except DataError as error:
        return [f"scores: unknown: {error}"]
    scores, guessed = numbers(facts), numbers(facts.get("guessing", {}))
    listed = ", ".join(
        f"{key} {written(key, value, '.2f')}" + (f" (guessing {guessed[key]:.2f})" if key in guessed else "")
        for key, value in scores.items()
    )
    return [f"scores: {listed}", *([f"  {facts['verdict']}"] if "verdict" in facts else [])]


def _times(status: Mapping[str, Any]) -> Sequence[str]:
    if not isinstance(status.get("began"), int | float):
        return []
    took = status.get("seconds", status.get("training_seconds"))
    duration_text = (
        f"; {'took' if 'seconds' in status else 'training took'} {duration(took)}" if took is not None else ""
    )
    return [f"began: {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(status['began']))}{duration_text}"]


def _facts(key: str, value: object) -> list[str]:
    """Return lines for a key of a status; a list of tables gives a line each, an empty value none."""
    if isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
        return [line for entry in value for line in _facts(key, entry)]
    words = _in_words(value)
    return [f"  {key.replace('_', ' ')}: {words}"] if words else []


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        parts = ((key, _in_words(inner)) for key, inner in value.items() if key not in INNER)
        return ", ".join(f"{key.replace('_', ' ')} {words}" for key, words in parts if words)
    if isinstance(value, list):
        return ", ".join(filter(None, map(_in_words, value)))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
