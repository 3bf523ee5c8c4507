"""Minimal pairs: is the good one of two sentences that differ in little the likelier one?

{"sentence_good": "Many girls insulted themselves.", "sentence_bad": "Many girls insulted herself."}
{"good": "...", "bad": ["...", "..."]}

BLiMP (Warstadt et al. 2020), its BabyLM supplement, MultiBLiMP, and any such file. Equal scores count as wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ordsmed.base.errors import DataError
from ordsmed.likelihood.items import Scorer, Scores
from ordsmed.likelihood.probe import Example, Finding, Record, cut, paths_of, records, share, text_of

KEYS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("sen", "wrong_sen"))
ALIKE = 1e-6  # scores no further apart are equal: fp32 does not tell them apart


@dataclass(frozen=True)
class Settings:
    """Accuracy over pairs, and over what the files call paradigms."""

    files: tuple[str, ...] = ()
    """JSON lines (or .tsv with a head), packed or plain; folders and patterns of them"""
    way: str = ""
    """causal, masked (each token hidden by itself), word (and its word's pieces right of it), detect, forward,
    backward, mean; empty: the model's usual one"""
    per: Literal["sentence", "token"] = "sentence"
    """scores that are compared: of whole sentences, or their mean a token"""

    best: ClassVar[bool] = False
    prefers: ClassVar[tuple[str, ...]] = ()

    def fits(self, scorer: Scorer, place: str) -> str:
        return ""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        def placed() -> Iterator[tuple[str, Sequence[str], Record]]:
            for path in paths_of(self.files):
                stem = path.name.split(".")[0]
                for place, result in records(path):
                    yield place, _texts(result, place), [str(result.get("UID") or stem), place]

        for _, example in cut(scorer, placed()):
            yield example

    def record(self, example: Example, scores: list[Scores]) -> Record:
        rows = [tuple(item.pieces.tolist()) for item in example.items]
        known = {row: self._score(one) for row, one in zip(rows, scores, strict=True)}  # equal tokens score equally
        return [*example.about, *(known[row] for row in rows)]

    def _score(self, scores: Scores) -> float:
        return scores.total / (len(scores.logs) if self.per == "token" else 1)

    def finding(self, records: list[Record]) -> Finding:
        by: dict[str, list[int]] = defaultdict(list)
        for record in records:
            by[record[0]].append(_right(record))
        right, ties = (sum(_right(record) == value for record in records) for value in (1, 0))
        guessed = 100 * sum(1 / (len(record) - 2) for record in records) / len(records)
        accuracy, error = share(right, len(records))
        rows: list[list[Any]] = [[name, len(marks), *share(marks.count(1), len(marks))] for name, marks in by.items()]
        facts: dict[str, Any] = {"accuracy": accuracy, "pairs": len(records), "right": right, "ties": ties}
        if len(rows) > 1:
            facts |= {"paradigms": len(rows), "paradigm_mean": sum(row[2] for row in rows) / len(rows)}
        return Finding(
            facts, {"accuracy": error}, {"accuracy": guessed},
            [("by paradigm", ["", "pairs", "accuracy", "error"], rows)] if len(rows) > 1 else [],
        )  # fmt: skip

    def told(self, record: Record) -> dict[str, Any]:
        paradigm, place, good, *bad = record
        file, _, line = place.rpartition(":")
        bad = bad[0] if len(bad) == 1 else bad
        about = {"file": file, "line": int(line), "paradigm": paradigm}
        return {**about, "good": good, "bad": bad, "right": _right(record) == 1, "tie": _right(record) == 0}


def _right(record: Record) -> int:
    """1: the good one is likelier than all others; 0: none is likelier, but some as likely; -1: wrong."""
    _, _, good, *bad = record
    lead = good - max(bad)
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
    others = result.get(bad)
    if isinstance(others, list) and others:
        texts = [text_of(result, good, place), *(text_of({bad: other}, bad, place) for other in others)]
    else:
        texts = [text_of(result, good, place), text_of(result, bad, place)]
    if texts[0] in texts[1:]:
        raise DataError(place, f"the good and the bad sentence are equal ({texts[0][:40]!r})", "two that differ")
    return texts


def _candidates(result: dict[str, Any], place: str) -> list[str]:
    texts, at = result["candidates"], result.get("right", 0)
    if not isinstance(texts, list) or len(texts) < 2 or not isinstance(at, int) or not 0 <= at < len(texts):
        raise DataError(place, "`candidates` with `right` are no choice", "two or more texts, and the number of one")
    texts = [text_of({"candidates": text}, "candidates", place) for text in texts]
    good = texts.pop(at)
    if good in texts:
        raise DataError(place, f"two candidates are equal ({good[:40]!r})", "texts that differ")
    return [good, *texts]
