"""Results of a study, written to stability.json: scores of runs, diverged runs, mean and deviation over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ordsmed.base import files, run
from ordsmed.base.errors import OrdsmedError, RecipeError, meant
from ordsmed.base.say import many
from ordsmed.learn.score.bands import Curve
from ordsmed.learn.score.seeds import LEVEL, is_number, over_seeds
from ordsmed.tell.report.learning_curve import LAST
from ordsmed.tell.show.state import sound
from ordsmed.tell.stability.plan import Study
from ordsmed.train import meters
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.guard import count_skipped
from ordsmed.train.run_group import PlannedRun

LOSSES = ("loss", "validation", "squared_error")  # metrics of fine-tuning for which lower is better
NO_SCORES = ("step", "tokens", "training_seconds", "unigram", "examples")  # numbers of a run that are not scores


def results(
    study: Study, failed: Mapping[str, str], metric: str = "", *, known: dict[int, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the results of all runs and over seeds.

    `failed` holds the errors of failed runs by name, `known` the rows of finished runs that were read before.
    """
    known, rows = {} if known is None else known, []
    for seed, member in zip(study.seeds, study.runs, strict=True):
        row = known.get(seed) or _of_run(seed, member, failed.get(member.name, ""))
        if row["state"] == "done":
            known[seed] = row
        rows.append(dict(row))
    scored = [row for row in rows if row["state"] == "done"]
    metric = metric or _default_metric(study, scored)
    names = dict.fromkeys(name for row in scored for name in row["scores"])
    if scored and metric not in names:
        raise RecipeError("--metric", f"found {metric}", f"one of {', '.join(names)}", meant(metric, names))
    for row in rows:
        row["why"] = row["why"] or _why_left_out(row, metric)
    return {
        "name": study.name,
        "folder": str(study.folder),
        "of": study.recipe.verb,
        "metric": metric,
        "lower_is_better": lower(study, metric),
        "level": LEVEL,
        "over": {name: _statistics(scored, name) for name in names},
        "in_mean": [row["seed"] for row in rows if not row["why"]],
        "beside": _other_seeds(study),
        "runs": rows,
    }


def _other_seeds(study: Study) -> list[int]:
    names = (path.stem.removeprefix("seed-") for path in study.folder.glob("seed-*.toml"))
    return sorted({int(name) for name in names if name.isdigit()} - set(study.seeds))


def _of_run(seed: int, member: PlannedRun, failed: str) -> dict[str, Any]:
    """Return the state and scores of a run; a run that cannot be read counts as failed."""
    row: dict[str, Any] = {
        "seed": seed,
        "folder": str(member.folder),
        "state": "not begun",
        "why": failed,
        "step": 0,
        "seconds": 0.0,
        "left_out": 0,
        "notes": [],
        "scores": {},
    }
    try:
        status = sound(member.folder)
        row["state"] = "failed" if failed else status.get("state", row["state"])
        row["left_out"] = count_skipped(status.get("left_out", []))
        row["notes"] += [
            f"steps {stretch['first']:,} to {stretch['last']:,} were left out: {stretch['why']}"
            for stretch in status.get("left_out", [])
        ]
        training = [line for line in course(member.folder) if "validation" not in line and "loss" in line]
        if training:
            seconds = sum(line["seconds"] for line in training if is_number(line.get("seconds")))
            losses = [line["loss"] for line in training[-LAST:]]
            row |= {
                "step": training[-1]["step"],
                "scores": {"loss": math.fsum(losses) / len(losses) if all(map(is_number, losses)) else math.nan},
            }
            row["seconds"] = round(seconds, 1)
        if row["state"] == "done":
            facts = files.read_table(member.folder / "scores.json")
            known = (*NO_SCORES, *row["scores"])  # the loss in the file is that of the last step alone
            row["scores"] |= {
                name: value for name, value in facts.items() if isinstance(value, float) and name not in known
            }
            row["scores"] = {name: value if is_number(value) else None for name, value in row["scores"].items()}
            row["notes"] += _guessing_notes(row["scores"], facts.get("guessing"), member)
            if row["step"] < status.get("step", 0) and not isinstance(member.recipe, Finetuning):
                row["notes"].append(
                    f"metrics.jsonl ends at step {row['step']:,} of {status['step']:,}: it is truncated"
                )
    except OrdsmedError as error:
        row |= {"state": "failed", "why": row["why"] or str(error)}
    return row


def course(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a run's metrics that have a step; none without a file."""
    path = folder / "metrics.jsonl"
    lines = meters.read(path) if path.exists() else []
    return [line for line in lines if isinstance(line, dict) and is_number(line.get("step"))]


def courses(folder: Path) -> tuple[Curve, Curve]:
    """Return the losses of a run by step, and its validation losses."""
    lines = course(folder)
    both = [(line["step"], line.get("loss"), line.get("validation")) for line in lines]
    losses = [(step, loss) for step, loss, validation in both if validation is None and loss is not None]
    return losses, [(step, validation) for step, _, validation in both if validation is not None]


def _guessing_notes(scores: Mapping[str, float], guessing: object, member: PlannedRun) -> list[str]:
    if not isinstance(guessing, dict):
        return []
    tuned = isinstance(member.recipe, Finetuning)
    score = run.read_recipe(Finetuning, member.folder).score if tuned else "validation"
    if not (is_number(scores.get(score)) and is_number(guessing.get(score))):
        return []
    level, value = guessing[score], scores[score]
    worse = value >= level if score in LOSSES else value <= level
    return [f"{score} {value:.4g} is no better than guessing, {level:.4g}"] if worse else []


def _default_metric(study: Study, scored: Sequence[Mapping[str, Any]]) -> str:
    usual = ["validation"]
    if isinstance(study.recipe, Finetuning):
        score = run.read_recipe(Finetuning, Path(scored[0]["folder"])).score if scored else study.recipe.score
        usual = [score, "validation"]
    return next((name for name in usual if any(name in row["scores"] for row in scored)), "loss")


def lower(study: Study, metric: str) -> bool:
    return metric in LOSSES if isinstance(study.recipe, Finetuning) else not metric.endswith("_right")


def _why_left_out(row: Mapping[str, Any], metric: str) -> str:
    if row["state"] != "done":
        return str(row["state"])
    if metric not in row["scores"]:
        return f"has no {metric}"
    return f"{metric} is not a number: it diverged" if row["scores"][metric] is None else ""


def _statistics(scored: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    values = [row["scores"][name] for row in scored if row["scores"].get(name) is not None]
    return asdict(over_seeds(values)) if values else {"count": 0}


def ended(result: Mapping[str, Any]) -> str:
    statistics, metric = result["over"].get(result["metric"], {"count": 0}), result["metric"]
    if not statistics["count"]:
        return "no seed has a score"
    deviation, mean = statistics["deviation"], statistics["mean"]
    if deviation is None:
        return f"{metric} {mean:.4f}; one seed has no deviation"
    low, high = statistics["interval"]
    interval = f"{result['level']:.0%} interval of the mean {rounded(low, deviation)} to {rounded(high, deviation)}"
    return (
        f"{metric} {rounded(mean, deviation)} ± {rounded(deviation, deviation)}: mean and sample deviation (n - 1) of "
        f"{many(statistics['count'], 'seed')}; {interval}"
    )


def rounded(value: float, deviation: float) -> str:
    """Format a number to the second significant digit of its deviation."""
    text = f"{deviation:.1e}"
    digits = min(8, max(2, 1 - int(text.partition("e")[2]))) if deviation else 4
    return f"{value:.{digits}f}"
