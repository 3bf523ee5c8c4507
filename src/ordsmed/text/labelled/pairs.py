"""Read pairs of texts for training embeddings: an anchor, its positive, negatives, and scores.

    {"anchor": "What falls?", "positive": "Rain falls.", "negatives": ["Newts swim."], "score": 0.9}

Columns are found by these names. Without `anchor` and `positive`, as in data sets of sentence-transformers, the order
counts: the first text is the anchor, the second its positive, all others are negatives, and `label` or `score` is the
score. All of `negative`, `negatives`, `negative_1`, `negative_2`... are read; a list is several texts, or scores.
SQuAD's files, nested or with a record per question, give questions with the contexts that answer them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base.errors import DataError
from ordsmed.base.say import many, say
from ordsmed.text import read
from ordsmed.text.labelled import questions, tables
from ordsmed.text.labelled.tables import Format

SCORES = ("score", "scores", "label", "labels")
NO_TEXT = (*SCORES, "document", "source")  # columns that are not texts of a pair
SIDES = ("anchor", "positive")
QUESTION = ("question", "context", "answers")  # columns of SQuAD's records
NEGATIVE = "negative"  # prefix of the names of columns of negatives
OFTEN = 10  # a pair with this many copies or more is reported


@dataclass(frozen=True)
class PairRow:
    line: int
    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()  # score of the positive, or of the positive and each negative; empty: no scores


@dataclass(frozen=True)
class PairColumns:
    """The names of the columns of a file by their roles."""

    anchor: str
    positive: str
    negatives: tuple[str, ...]
    score: str | None
    by_name: bool = False

    @property
    def of_squad(self) -> bool:
        return (self.anchor, self.positive) == QUESTION[:2]

    @staticmethod
    def of(path: Path, row: dict[str, Any]) -> PairColumns:
        """Return the columns by name, or by order, from the first row."""
        score = next((name for name in SCORES if name in row), None)
        if all(name in row for name in SIDES):
            return PairColumns(*SIDES, tuple(name for name in row if name.startswith(NEGATIVE)), score, by_name=True)
        if all(name in row for name in QUESTION):
            return PairColumns(*QUESTION[:2], (), None)
        texts = [name for name in row if name not in NO_TEXT and isinstance(row[name], str | list)]
        if len(texts) < 2 or not all(isinstance(row[name], str) for name in texts[:2]):
            named = ", ".join(f"`{name}`" for name in row) or "no columns"
            raise DataError(path, f"has {named}", "`anchor` and `positive`, or two columns of text in this order")
        return PairColumns(texts[0], texts[1], tuple(texts[2:]), score)


def read_pairs(
    path: Path, *, format: Format | None = None, header: bool = True, errors: read.Errors = "strict"
) -> list[PairRow]:
    """Return the pairs of a file. Pairs with an empty side are left out and reported."""
    if _is_nested(path, format, errors):
        return _of_squad(path, errors)
    pairs: list[PairRow] = []
    empty: list[int] = []
    unanswered: list[int] = []
    columns: PairColumns | None = None
    for line, row in tables.records(path, format=format, header=header, errors=errors):
        if columns is None or columns.by_name:  # an object may have negatives or a score that others do not have
            columns = PairColumns.of(path, row)
        if columns.of_squad and _is_unanswered(row):
            unanswered.append(line)
            continue
        pair = _pair(f"{path}:{line}", line, row, columns)
        if pair.anchor and pair.positive:
            pairs.append(pair)
        else:
            empty.append(line)
    _report_unanswered(path, len(unanswered), len(unanswered) + len(empty) + len(pairs))
    if empty and pairs:
        total = many(len(empty) + len(pairs), "pair")
        say(f"{path}: left out {len(empty):,} of {total} with an empty side; the first: line {empty[0]}")
    if not pairs:
        problem = f"an empty side in every pair ({len(empty):,})" if empty else "no pairs"
        raise DataError(path, problem, "at least one pair of texts")
    _report_repeated(path, pairs)
    return pairs


def _is_nested(path: Path, format: Format | None, errors: read.Errors) -> bool:
    """Return whether the file is one JSON object with a list under `data`, as SQuAD's files are."""
    if tables.kind_of(path, format) != "json":
        return False
    first = next((value for _, value in questions.json_values(path, errors)), None)
    return isinstance(first, dict) and isinstance(first.get("data"), list)


def _of_squad(path: Path, errors: read.Errors) -> list[PairRow]:
    all_questions, _ = questions.read([str(path)], repair=True, errors=errors)
    pairs = [
        PairRow(number, question.question.strip(), question.context.strip())
        for number, question in enumerate(all_questions, 1)
        if not question.impossible
    ]
    _report_unanswered(path, sum(question.impossible for question in all_questions), len(all_questions))
    if not pairs:
        raise DataError(path, "no question that a context answers", "at least one")
    return pairs


def _is_unanswered(row: dict[str, Any]) -> bool:
    answers = row.get("answers")
    texts = answers.get("text") if isinstance(answers, dict) else answers
    return row.get("is_impossible") is True or (isinstance(texts, list | tuple) and not len(texts))


def _report_unanswered(path: Path, count: int, total: int) -> None:
    if count:
        say(f"{path}: left out {count:,} of {many(total, 'question')} that their contexts do not answer")


def _pair(location: str, line: int, row: dict[str, Any], columns: PairColumns) -> PairRow:
    anchor, positive = (_text(location, name, row.get(name)) for name in (columns.anchor, columns.positive))
    negatives = [text for name in columns.negatives for text in _texts(location, name, row.get(name)) if text]
    scores = _scores(location, columns.score, row.get(columns.score)) if columns.score else ()
    if len(scores) not in (0, 1, 1 + len(negatives)):
        wanted = f"one, or {1 + len(negatives)}: of the positive and of each of {many(len(negatives), 'negative')}"
        raise DataError(location, f"{len(scores)} scores", wanted)
    return PairRow(line, anchor, positive, tuple(negatives), scores)


def _text(location: str, name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(location, f"`{name}` is {type(value).__name__} {str(value)[:30]}", "a text")
    return value.strip()


def _texts(location: str, name: str, value: object) -> Iterator[str]:
    for text in value if isinstance(value, list | tuple) else [value]:
        yield _text(location, name, text)


def _scores(location: str, name: str, value: object) -> tuple[float, ...]:
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [] if value in (None, "") else [value]
    try:
        scores = tuple(map(float, values))
    except (TypeError, ValueError):
        scores = (math.nan,)
    if not all(map(math.isfinite, scores)):
        raise DataError(location, f"`{name}` is {str(value)[:30]}", "a number, or a list of numbers")
    return scores


def _report_repeated(path: Path, pairs: Sequence[PairRow]) -> None:
    lines: dict[tuple[str, ...], list[int]] = {}
    for pair in pairs:
        lines.setdefault((pair.anchor, pair.positive, *pair.negatives), []).append(pair.line)
    often = [numbers for numbers in lines.values() if len(numbers) >= OFTEN]
    if often:
        example, more = max(often, key=len), sum(map(len, often)) - len(often)
        repeated = f"{many(len(often), 'pair', 'occurs', 'occur')} {OFTEN} times or more"
        most = f"the pair of line {example[0]} occurs {len(example):,} times"
        say(f"{path}: {repeated}, {many(more, 'row')} too many; {most}")
