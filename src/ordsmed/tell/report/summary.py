"""Summary of a run in a sentence: network, data, time, and quality compared with guessing.

A BERT of 3.5 million weights learned from 0.5 million Norwegian words in 14 minutes; on texts it never saw, it guesses
masked words (or pieces of words) right in 31.2% of cases (guessing: 5.1%).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ordsmed.base import menu
from ordsmed.base.errors import OrdsmedError
from ordsmed.base.say import many, with_article
from ordsmed.text import language

LESS_IS_BETTER = ("loss", "validation", "squared_error")


def summary(run: Mapping[str, Any]) -> str:
    """Return the summary sentence of a run; empty if no step was written."""
    if not (curve := run["course"]) or not curve["steps"]:
        return ""
    weights = f" of {large(run['parameters'])} weights" if run["parameters"] else ""
    learned = "learned" if run["state"] == "done" else "has so far learned"
    text = f"{_network(run['recipe'])}{weights} {learned}{_task(run['recipe'])}{_source(run)}"
    text += f" in {minutes(curve['hours'] * 3600)}"
    if run["state"] != "done" and run["planned"]:
        text += f" ({curve['step']:,.0f} of {many(run['planned'], 'step')})"
    verdict = f" {run['verdict'][:1].upper()}{run['verdict'][1:]}." if run.get("verdict") else ""
    return f"{text}{_quality(run)}.{verdict}"


def large(count: float) -> str:
    """Format a count as `12,345`, `0.5 million` or `3.3 billion`."""
    unit, name = (1e9, "billion") if count >= 0.95e9 else (1e6, "million")
    return f"{count:,.0f}" if count < 95_000 else f"{count / unit:.{0 if count >= 100 * unit else 1}f} {name}"


def minutes(seconds: float) -> str:
    """Format a duration roughly, such as `14 minutes` or `3.5 hours`."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * length:
            count = seconds / length
            return f"{count:.0f} {unit}s" if count >= 10 or unit == "minute" else f"{count:.1f} {unit}s"
    return many(max(1, round(seconds)), "second")


def _network(recipe: Mapping[str, Any]) -> str:
    kind = recipe.get("model.kind") or recipe.get("model")
    name = re.split(r"[:(]", str(_read("models", kind) or ""))[0].strip() or str(kind or "model")
    article = with_article(name)
    return article[:1].upper() + article[1:]


def _read(kinds: str, kind: object, constant: str = "") -> object:
    """Return the first sentence of a menu entry's file, or a constant in it; None if the file is gone."""
    try:
        module = menu.module_of(kinds, str(kind))
        return menu.constant(module, constant) if constant else menu.headline(module)
    except (OrdsmedError, OSError, SyntaxError, ValueError):
        return None


def _task(recipe: Mapping[str, Any]) -> str:
    kind = recipe.get("task.kind")
    return f" the task {kind}" if kind else ""


def _source(run: Mapping[str, Any]) -> str:
    """Return ` from 0.5 million Norwegian words`, or tokens or examples if words were not counted."""
    rows = [row for row in run["data"] if row["split"] in (None, "train")]
    languages = {language.NAMES.get(row["language"] or "", "") for row in rows}
    named = f"{languages.pop()} " if len(languages) == 1 and "" not in languages else ""
    for unit in ("words", "tokens") if run["kind"] == "pretrain" else ("examples",):
        counts = [row[unit] for row in rows]
        if counts and None not in counts:
            return f" from {large(sum(counts))} {named}{unit}"
    return ""


def _quality(run: Mapping[str, Any]) -> str:
    scores, guessing = (run["scores"].get(key, {}) for key in ("found", "guessing"))
    last = (run["course"]["last_judged"] or {}) | scores
    recipe = run["recipe"]
    phrases = _read("objectives", recipe.get("objective.kind") or recipe.get("objective"), "RIGHT")
    for key, phrase in phrases.items() if isinstance(phrases, dict) else ():
        if key in last:
            guess = f" (guessing: {guessing[key]:.1%})" if key in guessing else ""
            return f"; on texts it never saw, it {phrase} right in {last[key]:.1%} of cases{guess}"
    for key in (key for key in guessing if key in scores):
        if run["kind"] != "pretrain" or key == "validation":
            name = "the loss" if key == "validation" else key
            better = ", lower is better" if key in LESS_IS_BETTER else ""
            return f"; on examples it never saw, {name} is {scores[key]:.4g} (guessing: {guessing[key]:.4g}{better})"
    return "; its quality on texts it never saw was not measured" if run["state"] == "done" else ""
