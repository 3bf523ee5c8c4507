"""Minimal pairs: is the good one of two sentences that differ in little the likelier one?

{"sentence_good": "Many girls insulted themselves.", "sentence_bad": "Many girls insulted herself."}
{"good": "...", "bad": ["...", "..."]}

BLiMP (Warstadt et al. 2020), its BabyLM supplement, MultiBLiMP, and any such file. Equal scores count as wrong,
also those of equal sentences, of which BLiMP has some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood.choosing import ChoiceProbe, ChoiceQuestion, scores_by_choice
from ordsmed.measure.likelihood.items import Scores
from ordsmed.measure.likelihood.probe import Example, Record, paths_of, records, text_of

KEYS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("sen", "wrong_sen"))
ALIKE = 1e-6  # scores no further apart are equal: fp32 does not tell them apart


@dataclass(frozen=True)
class MinimalPairs(ChoiceProbe, Choice):
    """Accuracy over pairs, and over what the files call paradigms."""

    files: tuple[str, ...] = ()
    """JSON lines (or .tsv with a head), packed or plain; folders and patterns of them"""
    way: str = ""
    """causal, masked (each token hidden by itself), word (and its word's pieces right of it), detect, forward,
    backward, mean; empty: the model's usual one"""
    per: Literal["sentence", "token"] = "sentence"
    """scores that are compared: of whole sentences, or their mean a token"""
    space: bool = False
    """a space stands before each sentence, as lm-evaluation-harness has it"""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("space",)

    COUNTED: ClassVar[tuple[str, str]] = ("pairs", "paradigm")

    def questions(self) -> Iterator[ChoiceQuestion]:
        for path in paths_of(self.files):
            stem, kinds = path.name.split(".")[0], set()
            for place, row in records(path):
                texts = _texts(row, place)
                kinds.add(texts[0] in texts[1:])
                endings = [("", f" {text}" if self.space else text) for text in texts]
                yield ChoiceQuestion(place, endings, [str(row.get("UID") or stem), place])
            if kinds == {True}:
                raise DataError(path, "the good sentence of every pair is equal to a bad one", "pairs that differ")

    def record(self, example: Example, scores: list[Scores]) -> Record:
        """Paradigm, place, the score of the good one and of each other; None: the same sentence."""
        which, _, paradigm, place = example.about
        values = [s.total / (len(s.logs) if self.per == "token" else 1) for s in scores_by_choice(example, scores)]
        return [paradigm, place, values[0], *(v if n else None for n, v in zip(which[1:], values[1:], strict=True))]

    def marks(self, record: Record) -> dict[str, bool]:
        return {"accuracy": _right(record) == 1}

    def guess(self, record: Record) -> float:
        return 1 / (len(record) - 2)

    def facts(self, records: list[Record]) -> dict[str, Any]:
        return {name: sum(_right(record) == value for record in records) for name, value in (("right", 1), ("ties", 0))}

    def how(self, records: list[Record]) -> str:
        """Which files have pairs of equal sentences, and how many."""
        by: dict[str, list[bool]] = defaultdict(list)
        for record in records:
            by[record[1].rpartition(":")[0]].append(None in record[3:])
        some = [f"{sum(e):,} of {len(e):,} pairs of {Path(file).name}" for file, e in by.items() if any(e)]
        return f"equal sentences, which are never right: {', '.join(some)}" if some else ""

    def as_line(self, record: Record) -> dict[str, Any]:
        paradigm, place, good, *bad = record
        file, _, line = place.rpartition(":")
        bad = [good if score is None else score for score in bad]
        about = {"file": file, "line": int(line), "paradigm": paradigm, "good": good}
        right = _right(record)
        return {**about, "bad": bad if bad[1:] else bad[0], "right": right == 1, "tie": right == 0}


def _right(record: Record) -> int:
    """1: the good one is likelier than all others; 0: none is likelier, but some as likely; -1: wrong."""
    _, _, good, *bad = record
    lead = good - max(good if score is None else score for score in bad)
    return 1 if lead > ALIKE else 0 if lead >= -ALIKE else -1


def _texts(result: dict[str, Any], place: str) -> list[str]:
    """The good one first."""
    if "candidates" in result:
        return _candidates(result, place)
    known = next(((good, bad) for good, bad in KEYS if good in result or bad in result), None)
    if known is None:
        keys = ", ".join(list(result)[:8])
        wanted = " or ".join(f"`{good}` and `{bad}`" for good, bad in KEYS)
        raise DataError(place, f"holds no pair (keys: {keys})", wanted)
    good, bad = known
    texts = result.get(bad)
    if isinstance(texts, list) and texts:
        return [text_of(result, good, place), *(text_of({bad: text}, bad, place) for text in texts)]
    return [text_of(result, good, place), text_of(result, bad, place)]


def _candidates(result: dict[str, Any], place: str) -> list[str]:
    texts, at = result["candidates"], result.get("right", 0)
    if not isinstance(texts, list) or len(texts) < 2 or not isinstance(at, int) or not 0 <= at < len(texts):
        raise DataError(place, "`candidates` with `right` are no choice", "two or more texts, and the number of one")
    texts = [text_of({"candidates": text}, "candidates", place) for text in texts]
    return [texts.pop(at), *texts]
