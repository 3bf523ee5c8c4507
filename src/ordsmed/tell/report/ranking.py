"""Ranking of runs that were trained on the same data for the same objective or task, as a sentence.

Of 3 that learned mlm from the same data, the best by validation loss is b: 3.1000, 0.1000 less than a.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ordsmed.base.say import many
from ordsmed.tell.report.summary import LESS_IS_BETTER
from ordsmed.tell.report.tables import cut, loss, score_named

VALIDATION = "validation"


class RankedRecipe(NamedTuple):
    name: str
    value: float
    runs: int


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each task or objective and data that several runs have in common."""
    if len(report["runs"]) < 2:
        return
    sentences = [line for (name, score, _), group in _comparable(report).items() if (line := _line(name, score, group))]
    yield from sentences or ["No two of these runs have the same task and data, so they are not ranked."]


def _comparable(report: Mapping[str, Any]) -> dict[tuple[str, str, str], list[RankedRecipe]]:
    result: dict[tuple[str, str, str], list[RankedRecipe]] = {}
    for group in report["groups"]:
        runs = [report["runs"][number] for number in group["runs"]]
        recipe = runs[0]["recipe"]
        name = str(recipe.get("task.kind") or recipe.get("objective.kind") or recipe.get("objective") or "")
        score = _deciding(runs)
        values = [value for run in runs if (value := _value(run, score)) is not None]
        if name and score and values:
            key = name, score, str(sorted(str(row["fingerprint"] or row["source"]) for row in runs[0]["data"]))
            result.setdefault(key, []).append(RankedRecipe(group["name"], sum(values) / len(values), len(values)))
    return result


def _deciding(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the score that decides: validation loss in pretraining, the task's first score in fine-tuning."""
    if runs[0]["kind"] == "pretrain":
        return VALIDATION
    scores = runs[0]["scores"]
    return next((key for key in scores.get("guessing", {}) if key in scores.get("found", {})), "")


def _value(run: Mapping[str, Any], score: str) -> float | None:
    value = run["scores"].get("found", {}).get(score)
    if value is None and score == VALIDATION:
        value = ((run["course"] or {}).get("last_judged") or {}).get(VALIDATION)
    return value if isinstance(value, int | float) else None


def _line(name: str, score: str, recipes: list[RankedRecipe]) -> str:
    less = score in LESS_IS_BETTER
    ranked = sorted(recipes, key=lambda recipe: recipe.value if less else -recipe.value)
    called, show = (f"{VALIDATION} loss", loss) if score == VALIDATION else (score, score_named(score))
    best, *worse = ranked
    if not worse:
        mean = f"mean {called} {show(best.value)}"
        return f"{many(best.runs, 'run')} of one recipe ({cut(best.name)}): {mean}." if best.runs > 1 else ""
    by = f"{show(abs(best.value - worse[0].value))} {'less' if less else 'more'} than {cut(worse[0].name)}"
    mean = f" (mean of {many(best.runs, 'run')})" if best.runs > 1 else ""
    last = f"; the last is {cut(worse[-1].name)} with {show(worse[-1].value)}" if worse[1:] else ""
    first = f"Of {len(ranked)} that learned {name} from the same data, the best by {called} is {cut(best.name)}"
    return f"{first}: {show(best.value)}{mean}, {by}{last}."
