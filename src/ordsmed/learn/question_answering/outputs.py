"""Predicted answers: decoded from scores, read from files, and summarized in tables."""

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base.say import say
from ordsmed.data.features import Features
from ordsmed.data.question_windows import QuestionWindows
from ordsmed.data.windows import Ints
from ordsmed.learn.question_answering.records import QuestionRecords
from ordsmed.learn.score import answers as decode
from ordsmed.learn.score import squad as official
from ordsmed.learn.score.answers import Answered, Candidates, Decoding, Passage
from ordsmed.learn.task import Arrays

BLOCK = 256  # windows decoded at a time, to limit memory
BEAMS = ("start_log_probs", "start_index", "end_log_probs", "end_index", "unanswerable")


def decoded(
    records: QuestionRecords, features: Features, answers: Arrays, decoding: Decoding, *, joint: bool
) -> list[Answered]:
    """Return the best answers of each question, from beams (`joint`) or from start and end scores of all tokens."""
    more = features.more
    cut = QuestionWindows(**{f.name: more.get(f.name, 0) for f in fields(QuestionWindows)})  # type: ignore[arg-type]
    blocks = [np.arange(at, min(at + BLOCK, len(cut))) for at in range(0, len(cut), BLOCK)]
    candidates = decode.joined([_candidates(cut, features, answers, block, decoding, joint) for block in blocks])
    starts = more["contexts_begin"].tolist()
    passages = [
        Passage(q.id, q.context, *(more[side][starts[about] : starts[about + 1]] for side in ("left", "right")))
        for q, about in zip(records.questions, more["about"].tolist(), strict=True)
    ]
    return decode.pool(passages, cut.question, cut.first - more["begins"], candidates, decoding, joint=joint)


def _candidates(
    cut: QuestionWindows, features: Features, answers: Arrays, block: Ints, decoding: Decoding, joint: bool
) -> Candidates:
    longest = int(features.sizes[block].max())
    may_end, may_start = cut.positions(block, features.more["begins"][block], longest)
    if joint:
        beams = {name: answers[name][block] for name in BEAMS}
        return decode.beams(**beams, may_start=may_start, may_end=may_end, decoding=decoding)
    allowed = may_end | (np.arange(longest) == 0)
    start, end = (np.where(allowed, answers[name][block, :longest], -np.inf) for name in ("start", "end"))
    return decode.independent(start, end, may_start, may_end, decoding)


def read(path: Path, *, refuse: bool) -> list[Answered]:
    """Read predictions and, for SQuAD 2.0 (`refuse`), the null odds in a null_odds.json of the same folder."""
    texts, odds_path = official.read_predictions(path), path.with_name("null_odds.json")
    odds = official.read_null_odds(odds_path) if refuse and odds_path.is_file() else {}
    if odds and texts.keys() <= odds.keys():
        say(f"{odds_path}: used for the best_ scores")
    elif odds:
        say(f"{odds_path}: not used, because its questions are not those of {path.name}")
        odds = {}
    return [only_text(name, text, odds.get(name)) for name, text in texts.items()]


def only_text(name: str, text: str, null_odds: float | None = None) -> Answered:
    return Answered(name, text, (-1, -1), math.nan, null_odds, [])


def score(version: str, records: QuestionRecords, predictions: Sequence[Answered]) -> dict[str, float]:
    if not records.known:
        return {}
    odds = {answer.id: answer.null_odds for answer in predictions if answer.null_odds is not None}
    return official.scored(version, records.questions, _texts(predictions), odds or None)


def details(records: QuestionRecords, predictions: Sequence[Answered]) -> list[tuple[str, list[str], list[list[Any]]]]:
    if not records.known:
        return []
    tables = official.details(records.questions, _texts(predictions))
    cells = {
        title: [[kind, int(row["total"]), row["exact"], row["f1"]] for kind, row in rows.items()]
        for title, rows in tables.items()
    }
    return [(f"by {title}", [title, "questions", "exact match", "F1"], rows) for title, rows in cells.items()]


def best_threshold(records: QuestionRecords, predictions: Sequence[Answered]) -> float:
    """Return the threshold of null odds with the best F1; above it a question gets no answer."""
    texts = {answer.id: next((span.text for span in answer.n_best if span.text), "") for answer in predictions}
    odds = {answer.id: answer.null_odds or 0.0 for answer in predictions}
    return official.fitted_threshold(records.questions, texts, odds)


def _texts(predictions: Sequence[Answered]) -> dict[str, str]:
    return {answer.id: answer.text for answer in predictions}
