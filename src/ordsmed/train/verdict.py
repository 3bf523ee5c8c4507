"""Verdict: what the losses say about a pretraining: still falling, converged, overfitting or diverged.

Only the last phase counts, because losses of different phases are not comparable. Differences below 0.5% of a loss do
not count.

    diverged        the last validation loss is above the lowest, and the training loss rose too; or it is not finite
    overfitting     the last validation loss is above the lowest one, but the training loss did not rise
    still falling   the validation loss fell during the last fifth of the steps
    converged       it did not
    unknown         fewer than three validations, or an objective whose losses cannot be compared
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

SMALL = 0.005  # share of a loss below which a difference does not count
FEWEST = 3  # validations that a verdict needs
END = 0.2  # share of the steps, at the end, by which falling and converged differ
WINDOW = 0.1  # share of the steps over which training losses are averaged


@dataclass(frozen=True)
class Verdict:
    kind: str
    line: str  # to print
    best_step: int
    best: float
    last_step: int
    last: float

    @property
    def facts(self) -> dict[str, Any]:
        return asdict(self)


def verdict(
    validations: Mapping[int, float], training: Sequence[tuple[float, float]], *, kept: int = 0, comparable: bool = True
) -> Verdict | None:
    """Return the verdict on a run's last phase; None if nothing was validated.

    `validations` maps steps to losses; `training` lists steps with losses. `kept` is the step whose weights are used, 0
    if the run is not done.
    """
    if not validations:
        return None
    finite = {step: loss for step, loss in validations.items() if math.isfinite(loss)}
    last, best = max(validations), min(finite, key=lambda step: (finite[step], step), default=0)
    kind = _kind(validations, training, best, last) if comparable else "unknown"
    if not comparable:
        reason = "validation losses of this objective cannot be compared between steps"
    elif kind == "unknown":
        reason = f"it needs {FEWEST} or more validations of the last phase (`validate`)"
    else:
        reason = _reason(kind, validations, best, last, kept)
    line = f"{'no verdict' if kind == 'unknown' else kind}: {reason}"
    return Verdict(kind, line, best, validations.get(best, math.nan), last, validations[last])


def _kind(validations: Mapping[int, float], training: Sequence[tuple[float, float]], best: int, last: int) -> str:
    """Return the verdict's kind by the rule at the top of this file."""
    if not math.isfinite(validations[last]):
        return "diverged"
    if len(validations) < FEWEST:
        return "unknown"
    if _rose(validations[best], validations[last]):
        return "diverged" if _rose(_mean(training, best, last), _mean(training, last, last)) else "overfitting"
    before = [step for step in validations if step <= (1 - END) * last] or [min(validations)]
    return "still falling" if _rose(validations[last], validations[before[-1]]) else "converged"


def _rose(before: float, after: float) -> bool:
    return after - before > SMALL * abs(before)


def _mean(training: Sequence[tuple[float, float]], step: int, last: int) -> float:
    losses = [loss for at, loss in training if step - WINDOW * last < at <= step]
    return sum(losses) / len(losses) if losses else math.nan


def _reason(kind: str, validations: Mapping[int, float], best: int, last: int, kept: int) -> str:
    if not math.isfinite(validations[last]):
        return f"the validation loss of step {last:,} is not a finite number"
    lowest, end = f"{validations[best]:.4g} at step {best:,}", f"{validations[last]:.4g} at step {last:,}"
    used = f"; the weights of step {best:,} are used and exported"
    if kind in ("still falling", "converged"):
        small = f"fell by less than {SMALL:.1%} in the last fifth of the steps"
        course = "more steps would lower it further" if kind == "still falling" else small
        least = "" if best == last else f"; the lowest is {lowest}"
        return f"the validation loss is {end}, and {course}{least}{used if kept == best != last else ''}"
    both = "training and validation losses rose" if kind == "diverged" else "the validation loss rose"
    weights = {0: "", best: used}
    left = f"; the weights of step {kept:,} are used, those of step {best:,} were not kept (`keep_best = true`)"
    return f"{both}, from {lowest} to {end}{weights.get(kept, left)}"
