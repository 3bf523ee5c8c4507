"""Trials side by side: means over seeds, the best, the table, and what a person is told of a finished fine-tuning."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.chart import Mean
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.say import many
from ordsmed.base.screen import command, markdown
from ordsmed.learn.score.seeds import over_seeds
from ordsmed.learn.score.squad import written
from ordsmed.train.finetune.finish import found_in, numbers
from ordsmed.train.finetune.grid import Trial

SHOWN = 6  # scores in tables


def compared(score: str, trials: Sequence[Trial], failed: Mapping[str, str]) -> dict[str, Any]:
    """Means and deviations of every setting, and every trial: what trials.json holds."""
    done = [trial for trial in trials if trial.done]
    rows: list[dict[str, Any]] = []
    distinct: list[dict[str, Any]] = []
    for setting in (trial.setting for trial in trials):
        if setting not in distinct:
            distinct.append(setting)
    for setting in distinct:
        done_alike = [trial for trial in done if trial.setting == setting]
        rows.append(
            {
                "setting": setting,
                "seeds": [trial.recipe.seed for trial in done_alike],
                "scores": _over_seeds([trial.scores for trial in done_alike]),
                "guessing": _over_seeds([numbers(trial.facts.get("guessing", {})) for trial in done_alike]),
            }
        )
    means = [_least(row["scores"].get(score, {}).get("mean")) for row in rows]
    for row, mean in zip(rows, means, strict=True):
        row["best"] = len(rows) > 1 and mean == max(means) > -math.inf
    listed = [
        {"trial": trial.name, "setting": trial.setting, "seed": trial.recipe.seed}
        | ({"failed": failed[trial.name]} if trial.name in failed else _left_by(trial))
        for trial in trials
    ]
    return {"score": score, "best": best_of(done, score).name if done else None, "settings": rows, "trials": listed}


def best_of(done: Sequence[Trial], score: str) -> Trial:
    """Of trials that are done, the first of the highest score; of those without scores the first."""
    return max(done, key=lambda trial: _least(trial.scores.get(score)))


def _least(value: float | None) -> float:
    """For comparing: what was not judged, or is no number, comes last."""
    return -math.inf if value is None or math.isnan(value) else value


def _left_by(trial: Trial) -> dict[str, Any]:
    return {"step": trial.facts["step"], "seconds": trial.seconds, "scores": trial.scores}


def _over_seeds(scores: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and best of each score, and of several its sample deviation."""
    table = {}
    for name in scores[0] if scores else ():
        values = [trial[name] for trial in scores]
        over = over_seeds(values)
        more = {} if over.deviation is None else {"deviation": over.deviation}
        table[name] = {"mean": over.mean, "best": over.most, **more}
    return table


def table(title: str, result: Mapping[str, Any]) -> list[str]:
    """The trials in Markdown: a line a setting, then a line a trial."""
    score = result["score"]
    score_names = [
        name for name in dict.fromkeys(n for row in result["settings"] for n in row["scores"]) if name != score
    ]
    names = [score, *score_names[: SHOWN - 1]]
    lines = [
        f"# {title}: {many(len(result['trials']), 'trial')}", "",
        "Of the dev files: mean over seeds ± sample deviation (n - 1). Bold: the setting with the best mean.", "",
        *markdown(["setting", "seeds", score, "best", "guessing", *names[1:]],
                  [_of_setting(row, names) for row in result["settings"]], padded=True), "",
        "←: the best trial, of which `weights/`, `predictions/` and `recipe.toml` of the folder are.", "",
        *markdown(["trial", score, "step", "seconds", ""],
                  [_of_trial(trial, score, best=trial["trial"] == result["best"]) for trial in result["trials"]],
                  padded=True),
    ]  # fmt: skip
    return lines + [f"\n{trial['trial']} failed: {trial['failed']}" for trial in result["trials"] if "failed" in trial]


def _of_setting(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    first, *cells = [spread(row["scores"].get(name)) for name in names]
    record, guessed = (row[which].get(names[0], {}) for which in ("scores", "guessing"))
    mark = "**" if row["best"] else ""
    more = [f"{record['best']:.2f}" if record else "", f"{guessed['mean']:.2f}" if guessed else ""]
    title = f"{mark}{setting_of(row['setting'])}{mark}"
    return [title, str(len(row["seeds"])), f"{mark}{first}{mark}", *more, *cells]


def _of_trial(trial: Mapping[str, Any], score: str, *, best: bool) -> list[str]:
    if "failed" in trial:
        return [trial["trial"], "failed", "", "", ""]
    value = f"{trial['scores'][score]:.2f}" if score in trial["scores"] else ""
    return [trial["trial"], value, f"{trial['step']:,}", f"{trial['seconds']:,.0f}", "←" if best else ""]


def ended(folder: Path) -> list[str]:
    """What a person is told of a finished fine-tuning, and what to do next."""
    facts = found_in(folder)
    if kind_of_folder(folder) is FolderKind.TRIALS:
        result = files.read_json(folder / "trials.json")
        rows = result["settings"]
        wide = max(len(setting_of(row["setting"])) for row in rows)
        lines = [
            f"{folder}: {many(len(result['trials']), 'trial', 'is', 'are')} done; {folder}/trials.md compares them"
        ]
        lines += [f"  {setting_of(row['setting']):{wide}}  {_of_record(result['score'], row)}" for row in rows]
        lines.append(f"the folder stands for the best trial, {result['best']}")
    else:
        scores = ", ".join(f"{name} {written(name, value, '.2f')}" for name, value in numbers(facts).items())
        lines = [f"{folder}: done" + (f"; step {facts['step']:,}: {scores}" if scores else "")]
    if guessed := numbers(facts.get("guessing", {})):
        lines.append("guessing: " + ", ".join(f"{name} {value:.2f}" for name, value in guessed.items()))
    judged = [f"next: {command('evaluate', folder)}"] if numbers(facts) else []
    return [*lines, f"next: {command('show', folder)}", *judged, f"next: {command('predict', folder)} FILE OUT"]


def _of_record(score: str, row: Mapping[str, Any]) -> str:
    count = len(row["seeds"])
    scored = f"{score} {spread(row['scores'][score])}" if row["scores"] else "not scored"
    return f"{scored} ({count} seed{'s' if count > 1 else ''}){'  <- best' if row['best'] else ''}"


def setting_of(setting: Mapping[str, Any]) -> str:
    """A setting for a person."""
    words = (f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in setting.items())
    return ", ".join(words) or "as in the recipe"


def spread(score: Mapping[str, float] | None) -> str:
    """A mean with its deviation; nothing where there is none."""
    return str(Mean(score["mean"], score.get("deviation", math.nan))) if score else ""
