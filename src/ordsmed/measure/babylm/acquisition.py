"""Acquisition: do models learn words in the order in which children do (Chang and Bergen 2022)?

cdi_childes.json   {"dog": [{"context": "look at the"}, ...]}    surprisal of `dog` after so many words of training
cdi_human.csv      word,16,17,...,30                             share of children who say it, by months

Each curve is fitted by a sigmoid; a word is known where it goes through a half: of the children, or of the way from
guessing to the least surprisal. The score is Pearson's correlation of both ages.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import files
from ordsmed.base.errors import DataError
from ordsmed.measure.babylm.parts import Edition
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import records

Floats = NDArray[np.float64]
MONTHS = range(16, 31)
GUESSED = math.log2(300_000)  # of 2025: bits, beside surprisals in nats
FEWEST = 3  # words, without which there is no correlation
SURE = 0.1  # of 2026: a correlation of a larger p counts as 0


@dataclass(frozen=True)
class Curve:
    """How surprising a word is, after so many words of training; and to who guesses."""

    after: list[float]
    surprisals: list[float]
    guessed: float


@dataclass(frozen=True)
class Fit:
    """How ages agree."""

    correlation: float
    words: int  # of which both ages are known
    p: float = math.nan


def contexts(path: Path) -> Iterator[tuple[str, str, str]]:
    """Place, word and a context before it; words of one letter are left out."""
    table = files.read_table(path)
    for word, rows in table.items():
        for n, row in enumerate(rows if isinstance(rows, list) else [None], 1):
            if not isinstance(row, dict) or not isinstance(row.get("context"), str):
                raise DataError(f"{path}: {word}", "holds no contexts", '[{"context": "look at the"}, ...]')
            if len(word) > 1:
                yield f"{path}:{word}:{n}", word, row["context"]


def guessed(scorer: Scorer, word: str, edition: Edition) -> float:
    """The surprisal of a word to who guesses its pieces."""
    if edition == "2025":
        return GUESSED
    pipeline = scorer.tokenizer.pipeline
    pieces = [len(pipeline.encode(text, add_special_tokens=False).ids) for text in ("The", f"The {word}")]
    return max(1, pieces[1] - pieces[0]) * math.log(pipeline.get_vocab_size(with_added_tokens=False))


def children(path: Path) -> dict[str, tuple[Floats, Floats]]:
    """Months and shares of each word, where they are known; of a word that is there twice the first."""
    result: dict[str, tuple[Floats, Floats]] = {}
    for place, row in records(path):
        months = [month for month in MONTHS if str(month) in row]
        if "word" not in row or not months:
            raise DataError(place, "has no `word` and no months", "the columns word, 16, 17, ..., 30")
        try:
            known = [(month, float(row[str(month)])) for month in months if row[str(month)] not in ("", "NA", "nan")]
        except (TypeError, ValueError):
            raise DataError(place, "holds a share that is no number", "numbers from 0 to 1") from None
        result.setdefault(row["word"], (np.array([m for m, _ in known], float), np.array([s for _, s in known], float)))
    return result


def curves(edition: Edition, revisions: Mapping[float, Sequence[Sequence[Any]]]) -> dict[str, Curve]:
    """Of each word, from (word, surprisal, guessed) after so many words; 2026: the mean of its contexts."""
    by: dict[str, Curve] = {}
    for after in sorted(revisions):
        here: dict[str, list[float]] = defaultdict(list)
        for word, surprisal, chance in revisions[after]:
            by.setdefault(word, Curve([], [], chance))
            here[word].append(surprisal)
        for word, values in here.items():
            shown = [sum(values) / len(values)] if edition == "2026" else values
            by[word].after.extend([after] * len(shown))
            by[word].surprisals.extend(shown)
    return by


def compare(edition: Edition, curves: Mapping[str, Curve], ages: Mapping[str, tuple[Floats, Floats]]) -> Fit:
    """Of the words that both know."""
    from scipy.stats import pearsonr

    pairs = []
    for word, curve in curves.items():
        child = child_age(*ages[word]) if word in ages else None
        model = None if child is None else model_age(edition, curve)
        if child is not None and model is not None:
            pairs.append((model, child))
    if len(pairs) < FEWEST:
        return Fit(0.0, len(pairs))
    correlation, p = map(float, pearsonr(*map(list, zip(*pairs, strict=True))))
    return Fit(0.0 if edition == "2026" and p > SURE else correlation, len(pairs), p)


def child_age(months: Floats, shares: Floats) -> float | None:
    """In months, where half of the children say it; None: before the first or after the last, or no curve fits."""
    if len(shares) < 3:
        return None
    bounds = ([0, 0, months[0], -0.5], [2.0, 1.0, months[-1], 0.5])
    age = _crossed(months, shares, [1.0, 0.1, months.mean(), 0.0], 0.5, {"bounds": bounds, "maxfev": 1_000}, 0.0)
    return age if age is not None and months[0] <= age <= months[-1] else None


def model_age(edition: Edition, curve: Curve) -> float | None:
    """The logarithm (of ten) of how many words of training it takes."""
    after, values = np.array(curve.after), -np.array(curve.surprisals)
    known = ~np.isnan(values)
    if len(values) < 3 or not known.any():
        return None
    after, values = after[known], values[known]
    half, logs, least = (values.max() - curve.guessed) / 2, np.log10(after + 1), 0.0
    reach, lowest = values.max() - values.min(), values.min()
    how: dict[str, Any] = {"maxfev": 1_000}
    if edition == "2026":
        low = [0.0, 0.0, logs.min() - 1, lowest - 2 * reach - 1]
        how = {"bounds": (low, [10 * reach + 1, 100.0, logs.max() + 1, values.max() + 1]), "maxfev": 20_000}
        least = 1e-6
    age = _crossed(logs, values, [reach, 1.0, logs.mean(), lowest], half, how, least)
    return age if age is not None and after[0] <= 10**age - 1 <= after[-1] else None


def _crossed(
    x: Floats, y: Floats, begin: Sequence[float], level: float, how: dict[str, Any], least: float
) -> float | None:
    """Where a rising sigmoid that is fitted to points goes through a level."""
    from scipy.optimize import curve_fit

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (a, b, c, d), _ = curve_fit(_sigmoid, x, y, p0=begin, **how)
    except (RuntimeError, ValueError, TypeError):  # no curve fits
        return None
    if a <= least or b <= least or not d < level < a + d:
        return None
    return float(c - np.log(a / (level - d) - 1) / b)


def _sigmoid(x: Floats, a: float, b: float, c: float, d: float) -> Floats:
    return np.asarray(a / (1 + np.exp(-b * (x - c))) + d)


def has_fits() -> bool:
    """Is scipy installed, which fits?"""
    return find_spec("scipy") is not None
