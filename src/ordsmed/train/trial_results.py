"""Comparison of trials: means over seeds, the best trial, the table in Markdown and the printed summary."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.chart import Mean
from ordsmed.base.say import many
from ordsmed.base.screen import markdown
from ordsmed.learn.score.seeds import over_seeds
from ordsmed.train.grid import Trial

SHOWN = 6  # most scores shown in a table


def compare(
    score: str, trials: Sequence[Trial], failed: Mapping[str, str], *, lower_is_better: bool = False
) -> dict[str, Any]:
    """Return the content of trials.json: every trial, and the mean and deviation of every setting."""
    done = [trial for trial in trials if trial.done]
    rows: list[dict[str, Any]] = []
    for setting in _distinct(trial.setting for trial in trials):
        done_alike = [trial for trial in done if trial.setting == setting]
        rows.append(
            {
                "setting": setting,
                "seeds": [trial.recipe.seed for trial in done_alike],
                "scores": _over_seeds([trial.scores for trial in done_alike], lower_is_better),
                "guessing": _over_seeds([_baseline_scores(trial) for trial in done_alike], lower_is_better),
            }
        )
    means = [_rank(row["scores"].get(score, {}).get("mean"), lower_is_better) for row in rows]
    for row, mean in zip(rows, means, strict=True):
        row["best"] = len(rows) > 1 and mean == max(means) > -math.inf
    listed = [
        {"trial": trial.name, "setting": trial.setting, "seed": trial.recipe.seed}
        | ({"failed": failed[trial.name]} if trial.name in failed else _results_of(trial))
        for trial in trials
    ]
    best = best_of(done, score, lower_is_better=lower_is_better).name if done else None
    side = {"lower_is_better": True} if lower_is_better else {}
    return {"score": score, **side, "best": best, "settings": rows, "trials": listed}


def best_of(done: Sequence[Trial], score: str, *, lower_is_better: bool = False) -> Trial:
    """Return the finished trial with the best score; the first of equals, or the first if none has scores."""
    return max(done, key=lambda trial: _rank(trial.scores.get(score), lower_is_better))


def _rank(value: float | None, lower_is_better: bool) -> float:
    return -math.inf if value is None or math.isnan(value) else -value if lower_is_better else value


def _baseline_scores(trial: Trial) -> dict[str, float]:
    return trial.recipe.compared_by(trial.facts.get("guessing", {}))


def _results_of(trial: Trial) -> dict[str, Any]:
    return {"step": trial.facts["step"], "seconds": trial.seconds, "scores": trial.scores}


def _distinct(settings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    distinct: list[dict[str, Any]] = []
    for setting in settings:
        if setting not in distinct:
            distinct.append(setting)
    return distinct


def _over_seeds(scores: Sequence[Mapping[str, float]], lower_is_better: bool) -> dict[str, dict[str, float]]:
    table = {}
    for name in scores[0] if scores else ():
        values = [trial[name] for trial in scores]
        over = over_seeds(values)
        more = {} if over.deviation is None else {"deviation": over.deviation}
        table[name] = {"mean": over.mean, "best": over.least if lower_is_better else over.most, **more}
    return table


def table(title: str, result: Mapping[str, Any]) -> list[str]:
    score = result["score"]
    score_names = [
        name for name in dict.fromkeys(n for row in result["settings"] for n in row["scores"]) if name != score
    ]
    names, digits = [score, *score_names[: SHOWN - 1]], digits_of(result)
    held_out, left = (
        ("held-out text", "`weights/` and `recipe.toml`")
        if "lower_is_better" in result
        else ("the dev files", "`weights/`, `predictions/` and `recipe.toml`")
    )
    best = result["best"]
    trials = [_trial_row(trial, score, digits, best=trial["trial"] == best) for trial in result["trials"]]
    lines = [
        f"# {title}: {many(len(result['trials']), 'trial')}",
        "",
        f"Of {held_out}: mean over seeds ± sample deviation (n - 1). Bold: the setting with the best mean.",
        "",
        *markdown(
            ["setting", "seeds", score, "best", "guessing", *names[1:]],
            [_setting_row(row, names, digits) for row in result["settings"]],
            padded=True,
        ),
        "",
        f"←: the best trial, of which {left} of the folder are.",
        "",
        *markdown(["trial", score, "step", "seconds", ""], trials, padded=True),
    ]
    return lines + [f"\n{trial['trial']} failed: {trial['failed']}" for trial in result["trials"] if "failed" in trial]


def digits_of(result: Mapping[str, Any]) -> int:
    """Return the digits after the decimal point: losses differ by less than scores from 0 to 100."""
    return 4 if "lower_is_better" in result else 2


def _setting_row(row: Mapping[str, Any], names: Sequence[str], digits: int) -> list[str]:
    first, *cells = [spread(row["scores"].get(name), digits) for name in names]
    record, guessed = (row[which].get(names[0], {}) for which in ("scores", "guessing"))
    mark = "**" if row["best"] else ""
    more = [f"{record['best']:.{digits}f}" if record else "", f"{guessed['mean']:.{digits}f}" if guessed else ""]
    title = f"{mark}{setting_of(row['setting'])}{mark}"
    return [title, str(len(row["seeds"])), f"{mark}{first}{mark}", *more, *cells]


def _trial_row(trial: Mapping[str, Any], score: str, digits: int, *, best: bool) -> list[str]:
    if "failed" in trial:
        return [trial["trial"], "failed", "", "", ""]
    value = f"{trial['scores'][score]:.{digits}f}" if score in trial["scores"] else ""
    return [trial["trial"], value, f"{trial['step']:,}", f"{trial['seconds']:,.0f}", "←" if best else ""]


def summary(folder: Path) -> list[str]:
    result = files.read_json(folder / "trials.json")
    rows = result["settings"]
    wide = max(len(setting_of(row["setting"])) for row in rows)
    lines = [f"{folder}: {many(len(result['trials']), 'trial', 'is', 'are')} done; {folder}/trials.md compares them"]
    lines += [f"  {setting_of(row['setting']):{wide}}  {_record_text(result, row)}" for row in rows]
    return [*lines, f"the folder has the results of the best trial, {result['best']}"]


def _record_text(result: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    count, score = len(row["seeds"]), result["score"]
    scored = f"{score} {spread(row['scores'][score], digits_of(result))}" if row["scores"] else "not scored"
    return f"{scored} ({count} seed{'s' if count > 1 else ''}){'  <- best' if row['best'] else ''}"


def setting_of(setting: Mapping[str, Any]) -> str:
    words = (f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in setting.items())
    return ", ".join(words) or "as in the recipe"


def spread(score: Mapping[str, float] | None, digits: int = 2) -> str:
    return str(Mean(score["mean"], score.get("deviation", math.nan), digits=digits)) if score else ""
