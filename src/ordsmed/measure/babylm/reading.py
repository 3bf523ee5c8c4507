"""Reading times: how much surprisal improves their prediction from word length, frequency and position.

reading_data.csv (de Varda et al. 2023)  ->  -log p of each word and of the previous one  ->  R^2 of two regressions

As in BabyLM's program, least squares use the predictors known without a model and their pairwise products. `gain` is
the share of the remaining variance that surprisal explains, in per cent: (R^2 with - R^2 without) / (1 - R^2 without).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.measure.likelihood.items import Item, Scorer
from ordsmed.measure.likelihood.probe import records

EYE = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")
SELF_PACED = "self_paced_reading_time"
PLAIN = ("Subtlex_log10", "length", "context_length")
SPILLED = (*PLAIN, "prev_length", "prev_pred")  # spill-over of the previous word
NUMBERS = (*EYE, SELF_PACED, *PLAIN, "prev_length")
TEXTS = ("item", "word", "prev_item", "prev_word")
MASKS = 3  # masks after the context of a masked model
NONE = {"", "#N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}  # pandas


@dataclass(frozen=True)
class Word:
    """A word in its text, the previous word, and its measurements."""

    place: str
    context: str
    word: str
    before: tuple[str, str] | None
    numbers: list[float | None]


@dataclass(frozen=True)
class Gain:
    rows: int
    without: float  # R^2 without surprisal
    with_it: float  # R^2 with surprisal

    @property
    def percent(self) -> float:
        """Share of the variance left without surprisal that it explains, in per cent."""
        return 100 * (self.with_it - self.without) / (1 - self.without)

    @property
    def log_likelihood(self) -> float:
        return self.rows / 2 * math.log((1 - self.without) / (1 - self.with_it))


def words(path: Path) -> Iterator[Word]:
    """Yield the words in `path`, a table with the columns of reading_data.csv.

    The first word of a text has no context in the table. Its context becomes the text "None", because BabyLM's program
    converts missing texts to it.
    """
    for location, row in records(path):
        if missing := [name for name in (*TEXTS, *NUMBERS) if name not in row]:
            raise DataError(location, f"has no column {missing[0]}", "the columns of reading_data.csv")
        item, word, *previous = (row[name] for name in TEXTS)
        last = None if previous[0] in NONE else (previous[0], previous[1])
        yield Word(
            location, "None" if item in NONE else item, word, last, [_number(row, name, location) for name in NUMBERS]
        )


def items(scorer: Scorer, context: str, word: str) -> list[Item]:
    """Return an item per token of a word; like BabyLM's program, append each token as text and tokenize again."""
    pipeline = scorer.tokenizer.pipeline
    if not (pieces := pipeline.encode(word, add_special_tokens=False).ids):
        raise DataError("word", f"{word!r} has no token", "a word")
    result = []
    for n, piece in enumerate(pieces):
        text = pipeline.decode([piece], skip_special_tokens=False)
        target = piece if n == 0 else (pipeline.encode(text, add_special_tokens=False).ids or [piece])[0]
        result.append(_item(scorer, context, target))
        context += text
    return result


def _item(scorer: Scorer, context: str, target: int) -> Item:
    """Score a token after a context: causally, or as the first of three masks (Samuel 2024)."""
    tokenizer = scorer.tokenizer
    if scorer.way == "causal":
        context_pieces = tokenizer.pipeline.encode(context, add_special_tokens=False).ids
        return Item(np.asarray([*context_pieces, target], np.int64), first=len(context_pieces))
    masks = tokenizer.piece(tokenizer.mask or 0) * MASKS
    pieces = np.asarray(tokenizer.pipeline.encode(context + masks, add_special_tokens=False).ids, np.int64)
    at = len(pieces) - MASKS
    pieces[at] = target
    return Item(pieces, first=at, hidden=np.arange(at, len(pieces)))


def gain(rows: Sequence[Sequence[float | None]], names: Sequence[str], outcome: str, known: Sequence[str]) -> Gain:
    """Fit an outcome by least squares without and with surprisal, on rows without missing values."""
    columns = [names.index(name) for name in (outcome, *known, "pred")]
    selected = [[row[n] for n in columns] for row in rows]
    table = np.asarray([row for row in selected if None not in row], np.float64)
    if len(table) <= len(columns) + math.comb(len(known), 2):
        raise DataError(outcome, f"{len(table)} complete rows", "more than the regression has coefficients")
    times, predictors, pred = table[:, 0], table[:, 1:-1], table[:, -1:]
    products = [predictors[:, a] * predictors[:, b] for a, b in combinations(range(len(known)), 2)]
    base = np.column_stack([np.ones(len(table)), predictors, *products])
    return Gain(len(table), _explained(base, times), _explained(np.hstack([base, pred]), times))


def _explained(columns: NDArray[np.float64], times: NDArray[np.float64]) -> float:
    columns = columns / np.maximum(np.abs(columns).max(axis=0), 1e-300)
    residuals = times - columns @ np.linalg.lstsq(columns, times, rcond=None)[0]
    return float(1 - (residuals @ residuals) / ((times - times.mean()) ** 2).sum())


def _number(row: dict[str, Any], name: str, location: str) -> float | None:
    if row[name] in NONE:
        return None
    try:
        return float(row[name])
    except (TypeError, ValueError):
        raise DataError(location, f"`{name}` is {str(row[name])[:40]!r}", "a number") from None
