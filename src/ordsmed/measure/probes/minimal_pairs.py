"""Minimal pairs: is the good one of two sentences that differ in little the likelier one?

{"sentence_good": "Many girls insulted themselves.", "sentence_bad": "Many girls insulted herself."}
{"good": "...", "bad": ["...", "..."]}

BLiMP (Warstadt et al. 2020), its BabyLM supplement, MultiBLiMP, and any such file. Equal scores count as wrong,
also those of equal sentences, of which BLiMP has some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.learn.score.paired import Clustered, clustered
from ordsmed.measure.likelihood.items import Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, Judged, Record, cut, paths_of, records, share, text_of

KEYS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("sen", "wrong_sen"))
ALIKE = 1e-6  # scores no further apart are equal: fp32 does not tell them apart


@dataclass(frozen=True)
class MinimalPairs(Choice):
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

    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()

    def fits(self, scorer: Scorer, place: str) -> str:
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        def placed() -> Iterator[tuple[str, Sequence[str], Record]]:
            for path in paths_of(self.files):
                stem, kinds = path.name.split(".")[0], set()
                for place, result in records(path):
                    good, *others = _texts(result, place)
                    equal = [other == good for other in others]
                    kinds.add(any(equal))
                    texts = [good, *(other for other in others if other != good)]
                    texts = [f" {text}" for text in texts] if self.space else texts
                    yield place, texts, [str(result.get("UID") or stem), place, *equal]
                if kinds == {True}:
                    raise DataError(path, "the good sentence of every pair is equal to a bad one", "pairs that differ")

        for _, example in cut(scorer, placed()):
            yield example

    def record(self, example: Example, scores: list[Scores]) -> Record:
        rows = [tuple(item.pieces.tolist()) for item in example.items]
        known = {row: self._score(one) for row, one in zip(rows, scores, strict=True)}  # equal tokens score equally
        paradigm, place, *equal = example.about
        good, *others = (known[row] for row in rows)
        left = iter(others)
        return [paradigm, place, good, *(None if same else next(left) for same in equal)]  # None: the same sentence

    def _score(self, scores: Scores) -> float:
        return scores.total / (len(scores.logs) if self.per == "token" else 1)

    def finding(self, records: list[Record]) -> Finding:
        by: dict[str, list[int]] = defaultdict(list)
        for record in records:
            by[record[0]].append(_right(record))
        right, ties = (sum(_right(record) == value for record in records) for value in (1, 0))
        guessed = 100 * sum(1 / (len(record) - 2) for record in records) / len(records)
        accuracy = self._over_paradigms(records)
        rows: list[list[Any]] = [[name, len(marks), *share(marks.count(1), len(marks))] for name, marks in by.items()]
        facts: dict[str, Any] = {"accuracy": accuracy.mean, "pairs": len(records), "right": right, "ties": ties}
        errors = {"accuracy": accuracy.error}
        if len(rows) > 1:
            means = [row[2] for row in rows]
            mean = clustered(means, [1.0] * len(means), [""] * len(means))
            facts |= {"paradigms": len(rows), "paradigm_mean": mean.mean}
            errors |= {"paradigm_mean": mean.error}
        return Finding(
            facts,
            errors,
            {"accuracy": guessed},
            [("by paradigm", ["", "pairs", "accuracy", "error"], rows)] if len(rows) > 1 else [],
            _equal(records),
        )

    def compared(self, records: list[Record]) -> list[Judged]:
        """What two models are compared by."""
        several = len({record[0] for record in records}) > 1  # of one paradigm each pair stands by itself
        return [
            Judged(record[1], record[0] if several else "", {"accuracy": 100.0 * (_right(record) == 1)})
            for record in records
        ]

    def _over_paradigms(self, records: list[Record]) -> Clustered:
        """The share of right pairs, in per cent; its error knows that those of a paradigm are much alike."""
        judged = self.compared(records)
        return clustered([one.values["accuracy"] for one in judged], [1.0] * len(judged), [one.group for one in judged])

    def told(self, record: Record) -> dict[str, Any]:
        paradigm, place, good, *others = record
        file, _, line = place.rpartition(":")
        scores = [good if other is None else other for other in others]
        bad = scores[0] if len(scores) == 1 else scores
        about = {"file": file, "line": int(line), "paradigm": paradigm}
        return {**about, "good": good, "bad": bad, "right": _right(record) == 1, "tie": _right(record) == 0}


def _right(record: Record) -> int:
    """1: the good one is likelier than all others; 0: none is likelier, but some as likely; -1: wrong."""
    _, _, good, *others = record
    lead = good - max(good if other is None else other for other in others)
    return 1 if lead > ALIKE else 0 if lead >= -ALIKE else -1


def _equal(records: list[Record]) -> str:
    """Which files have pairs of equal sentences, and how many, in a line; or nothing."""
    by: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        by[record[1].rpartition(":")[0]].append(None in record[3:])
    some = [f"{sum(marks):,} of {len(marks):,} pairs of {Path(file).name}" for file, marks in by.items() if any(marks)]
    return f"equal sentences, which are never right: {', '.join(some)}" if some else ""


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
    others = result.get(bad)
    if isinstance(others, list) and others:
        return [text_of(result, good, place), *(text_of({bad: other}, bad, place) for other in others)]
    return [text_of(result, good, place), text_of(result, bad, place)]


def _candidates(result: dict[str, Any], place: str) -> list[str]:
    texts, at = result["candidates"], result.get("right", 0)
    if not isinstance(texts, list) or len(texts) < 2 or not isinstance(at, int) or not 0 <= at < len(texts):
        raise DataError(place, "`candidates` with `right` are no choice", "two or more texts, and the number of one")
    texts = [text_of({"candidates": text}, "candidates", place) for text in texts]
    return [texts.pop(at), *texts]
