"""Age of acquisition: do models learn words in the order in which children do (Chang and Bergen 2022)?

cdi_childes.json   {"dog": [{"context": "look at the"}, ...]}    surprisal of `dog` over words of training
cdi_human.csv      word,16,17,...,30                             share of children who say it, by month

A sigmoid is fitted to each curve. A word counts as learned where the sigmoid crosses one half: of the children, or of
the way from guessing to the lowest surprisal. The score is Pearson's correlation of both ages.
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
GUESSED = math.log2(300_000)  # edition 2025; in bits, although surprisals are in nats
FEWEST = 3  # smallest number of words for a correlation
SURE = 0.1  # edition 2026: with a larger p-value, the correlation counts as 0


@dataclass(frozen=True)
class Curve:
    """Surprisal of a word over words of training, and by guessing."""

    after: list[float]
    surprisals: list[float]
    guessed: float


@dataclass(frozen=True)
class Fit:
    correlation: float
    words: int  # words with both ages known
    p: float = math.nan


def contexts(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield place, word and a context before it; words of one letter are left out."""
    table = files.read_table(path)
    for word, rows in table.items():
        for n, row in enumerate(rows if isinstance(rows, list) else [None], 1):
            if not isinstance(row, dict) or not isinstance(row.get("context"), str):
                raise DataError(f"{path}: {word}", "holds no contexts", '[{"context": "look at the"}, ...]')
            if len(word) > 1:
                yield f"{path}:{word}:{n}", word, row["context"]


def guessed(scorer: Scorer, word: str, edition: Edition) -> float:
    """Return the surprisal of a word under a uniform distribution of its tokens."""
    if edition == "2025":
        return GUESSED
    pipeline = scorer.tokenizer.pipeline
    pieces = [len(pipeline.encode(text, add_special_tokens=False).ids) for text in ("The", f"The {word}")]
    return max(1, pieces[1] - pieces[0]) * math.log(pipeline.get_vocab_size(with_added_tokens=False))


def children(path: Path) -> dict[str, tuple[Floats, Floats]]:
    """Return months and shares of each word, without missing values; the first entry of a repeated word counts."""
    result: dict[str, tuple[Floats, Floats]] = {}
    for location, row in records(path):
        months = [month for month in MONTHS if str(month) in row]
        if "word" not in row or not months:
            raise DataError(location, "has no `word` and no months", "the columns word, 16, 17, ..., 30")
        try:
            known = [(month, float(row[str(month)])) for month in months if row[str(month)] not in ("", "NA", "nan")]
        except (TypeError, ValueError):
            raise DataError(location, "holds a share that is not a number", "numbers from 0 to 1") from None
        result.setdefault(row["word"], (np.array([m for m, _ in known], float), np.array([s for _, s in known], float)))
    return result


def curves(edition: Edition, revisions: Mapping[float, Sequence[Sequence[Any]]]) -> dict[str, Curve]:
    """Return the curve of each word.

    `revisions` maps words of training to rows of (word, surprisal, guessed). In 2026 the contexts of a word are
    averaged.
    """
    by: dict[str, Curve] = {}
    for words_of_training in sorted(revisions):
        values_by_word: dict[str, list[float]] = defaultdict(list)
        for word, surprisal, chance in revisions[words_of_training]:
            by.setdefault(word, Curve([], [], chance))
            values_by_word[word].append(surprisal)
        for word, values in values_by_word.items():
            averaged = [sum(values) / len(values)] if edition == "2026" else values
            by[word].after.extend([words_of_training] * len(averaged))
            by[word].surprisals.extend(averaged)
    return by


def compare(edition: Edition, curves: Mapping[str, Curve], ages: Mapping[str, tuple[Floats, Floats]]) -> Fit:
    from scipy.stats import pearsonr

    pairs = []
    for word, curve in curves.items():
        child_month = child_age(*ages[word]) if word in ages else None
        model = None if child_month is None else model_age(edition, curve)
        if child_month is not None and model is not None:
            pairs.append((model, child_month))
    if len(pairs) < FEWEST:
        return Fit(0.0, len(pairs))
    correlation, p = map(float, pearsonr(*map(list, zip(*pairs, strict=True))))
    return Fit(0.0 if edition == "2026" and p > SURE else correlation, len(pairs), p)


def child_age(months: Floats, shares: Floats) -> float | None:
    """Return the month in which half of the children say a word; None without a fit, or outside the months."""
    if len(shares) < 3:
        return None
    bounds = ([0, 0, months[0], -0.5], [2.0, 1.0, months[-1], 0.5])
    age = _crossing(months, shares, [1.0, 0.1, months.mean(), 0.0], 0.5, {"bounds": bounds, "maxfev": 1_000}, 0.0)
    return age if age is not None and months[0] <= age <= months[-1] else None


def model_age(edition: Edition, curve: Curve) -> float | None:
    """Return log10 of the words of training after which a model knows a word; None without a fit."""
    after, values = np.array(curve.after), -np.array(curve.surprisals)
    known = ~np.isnan(values)
    if len(values) < 3 or not known.any():
        return None
    after, values = after[known], values[known]
    half, logs, least = (values.max() - curve.guessed) / 2, np.log10(after + 1), 0.0
    reach, lowest = values.max() - values.min(), values.min()
    options: dict[str, Any] = {"maxfev": 1_000}
    if edition == "2026":
        low = [0.0, 0.0, logs.min() - 1, lowest - 2 * reach - 1]
        options = {"bounds": (low, [10 * reach + 1, 100.0, logs.max() + 1, values.max() + 1]), "maxfev": 20_000}
        least = 1e-6
    age = _crossing(logs, values, [reach, 1.0, logs.mean(), lowest], half, options, least)
    return age if age is not None and after[0] <= 10**age - 1 <= after[-1] else None


def _crossing(
    x: Floats, y: Floats, begin: Sequence[float], level: float, options: dict[str, Any], least: float
) -> float | None:
    """Fit a rising sigmoid and return where it crosses `level`; None without a fit."""
    from scipy.optimize import curve_fit

    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (a, b, c, d), _ = curve_fit(_sigmoid, x, y, p0=begin, **options)
    except (RuntimeError, ValueError, TypeError):  # the fit failed
        return None
    if a <= least or b <= least or not d < level < a + d:
        return None
    return float(c - np.log(a / (level - d) - 1) / b)


def _sigmoid(x: Floats, a: float, b: float, c: float, d: float) -> Floats:
    return np.asarray(a / (1 + np.exp(-b * (x - c))) + d)


def has_fits() -> bool:
    return find_spec("scipy") is not None
