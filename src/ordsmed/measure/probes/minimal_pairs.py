"""Minimal pairs: is the acceptable one of two nearly equal sentences the likelier one?

    {"sentence_good": "Many girls insulted themselves.", "sentence_bad": "Many girls insulted herself."}
    {"good": "...", "bad": ["...", "..."]}

Reads BLiMP (Warstadt et al. 2020), its BabyLM supplement, MultiBLiMP, and files of the same form. Equal scores count as
wrong, including those of the few identical sentences in BLiMP; BabyLM's evaluation of 2025 counts them as right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from ordsmed.base.errors import DataError, RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood.choosing import ChoiceProbe, ChoiceQuestion, scores_by_choice
from ordsmed.measure.likelihood.items import Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Record, paths_of, records, text_of

KEYS = (("sentence_good", "sentence_bad"), ("good", "bad"), ("sen", "wrong_sen"))
ALIKE = 1e-6  # scores this close are equal, within fp32 precision
BABYLM_WAYS = ("causal", "masked")  # BabyLM's backends causal, mlm and, for hybrids, mntp


@dataclass(frozen=True)
class PairRecord(Record):
    """Scores of sentences, the good one first; None for a bad one that is equal to it."""

    group: str  # paradigm
    place: str
    scores: list[float | None]
    means: list[float | None] | None = None  # scores per token, for scoring = "babylm"

    def to_list(self) -> list[Any]:
        return [self.group, self.place, *self.scores, *([] if self.means is None else [self.means])]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Self:
        group, place, *scores = values
        means = scores.pop() if isinstance(scores[-1], list) else None
        return cls(group, place, scores, means)


@dataclass(frozen=True)
class MinimalPairs(ChoiceProbe, Choice):
    """Accuracy over pairs and over paradigms."""

    files: tuple[str, ...] = ()
    """JSON lines or .tsv with a header, compressed or not; folders or patterns of files"""
    way: str = ""
    """causal, masked (one token at a time), word (with the later tokens of its word), detect, forward, backward, mean;
    empty: the model's default"""
    per: Literal["sentence", "token"] = "sentence"
    """what to compare: the scores of sentences, or their means per token"""
    space: bool = False
    """put a space before each sentence, as lm-evaluation-harness does"""
    scoring: Literal["own", "babylm"] = "own"
    """babylm: as in BabyLM's evaluation of 2025, compare sums, ties count as right; means per token are also shown"""

    RECORD: ClassVar = PairRecord
    LATER_ADDED: ClassVar[tuple[str, ...]] = ("space", "scoring")

    COUNTED: ClassVar[tuple[str, str]] = ("pairs", "paradigm")

    def __post_init__(self) -> None:
        if self.scoring == "babylm" and (self.per != "sentence" or self.space):
            setting = "per=token" if self.per != "sentence" else "space=true"
            raise ValueError(f"scoring: found babylm with {setting}, which it does not support; leave one of them out")

    def fits(self, scorer: Scorer, location: str) -> str:
        if self.scoring == "own":
            return ""
        if scorer.way not in BABYLM_WAYS:
            problem = f"scoring=babylm of a model that is read the way `{scorer.way}`"
            raise RecipeError(location, problem, " or ".join(BABYLM_WAYS), "leave scoring out")
        first = "" if _is_first_scored(scorer) else ", the first token is not scored, as there is no start token"
        return f"`babylm` compares sums, ties are right{first}; `per_token` compares means and is not a score of BabyLM"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        if self.scoring == "own" or _is_first_scored(scorer):
            yield from super().examples(scorer)
            return
        for example in super().examples(scorer):
            items = tuple(replace(item, first=max(item.first, 1), sign=False) for item in example.items)
            for item in items:
                if item.scored_count < 1:
                    text = scorer.tokenizer.decode(item.pieces.tolist())
                    raise DataError(str(example.about[-1]), f"{text!r} has one token, without context", "two or more")
            yield replace(example, items=items)

    def questions(self) -> Iterator[ChoiceQuestion]:
        for path in paths_of(self.files):
            stem, kinds = path.name.split(".")[0], set()
            for location, row in records(path):
                texts = _texts(row, location)
                kinds.add(texts[0] in texts[1:])
                endings = [("", f" {text}" if self.space else text) for text in texts]
                yield ChoiceQuestion(location, endings, [str(row.get("UID") or stem), location])
            if kinds == {True}:
                raise DataError(path, "the good sentence of every pair is equal to a bad one", "pairs that differ")

    def record(self, example: Example, scores: list[Scores]) -> PairRecord:
        item_numbers, _, paradigm, location = example.about
        results = [
            s if n else None for n, s in zip([1, *item_numbers[1:]], scores_by_choice(example, scores), strict=True)
        ]
        sums, means = [s.total if s else None for s in results], [s.total / len(s.logs) if s else None for s in results]
        if self.scoring == "babylm":
            return PairRecord(paradigm, location, sums, means)
        return PairRecord(paradigm, location, means if self.per == "token" else sums)

    def marks(self, record: PairRecord) -> dict[str, bool]:
        if record.means is None:
            return {"accuracy": _right(record.scores) == 1}
        return {"babylm": _right(record.scores) >= 0, "per_token": _right(record.means) == 1}

    def guess(self, record: PairRecord) -> float:
        return 1 / len(record.scores)

    def facts(self, records: list[PairRecord]) -> dict[str, Any]:
        leads = [_right(record.scores) for record in records]
        ties = leads.count(0)
        return {"right": leads.count(1) + (ties if self.scoring == "babylm" else 0), "ties": ties}

    def note(self, records: list[PairRecord]) -> str:
        by: dict[str, list[bool]] = defaultdict(list)
        for record in records:
            by[record.place.rpartition(":")[0]].append(None in record.scores)
        files = [f"{sum(e):,} of {len(e):,} pairs of {Path(file).name}" for file, e in by.items() if any(e)]
        counted = "which are ties" if self.scoring == "babylm" else "which are never right"
        return f"equal sentences, {counted}: {', '.join(files)}" if files else ""

    def as_line(self, record: PairRecord) -> dict[str, Any]:
        good, *bad = record.scores
        file, _, line = record.place.rpartition(":")
        bad = [good if score is None else score for score in bad]
        about = {"file": file, "line": int(line), "paradigm": record.group, "good": good}
        comparison = _right(record.scores)
        right = next(iter(self.marks(record).values()))
        return {**about, "bad": bad if bad[1:] else bad[0], "right": right, "tie": comparison == 0}


def _is_first_scored(scorer: Scorer) -> bool:
    """Return whether models of this kind put a start token before a text, so that its first token is scored."""
    return scorer.way != "causal" or (scorer.tokenizer.separator is not None and scorer.tokenizer.begins_texts)


def _right(scores: list[Any]) -> int:
    """Return 1 if the first sentence is likelier than all others, 0 for a tie, -1 otherwise."""
    good, *bad = scores
    margin = good - max(good if score is None else score for score in bad)
    return 1 if margin > ALIKE else 0 if margin >= -ALIKE else -1


def _texts(result: dict[str, Any], location: str) -> list[str]:
    if "candidates" in result:
        return _candidates(result, location)
    known = next(((good, bad) for good, bad in KEYS if good in result or bad in result), None)
    if known is None:
        keys = ", ".join(list(result)[:8])
        wanted = " or ".join(f"`{good}` and `{bad}`" for good, bad in KEYS)
        raise DataError(location, f"holds no pair (keys: {keys})", wanted)
    good, bad = known
    texts = result.get(bad)
    if isinstance(texts, list) and texts:
        return [text_of(result, good, location), *(text_of({bad: text}, bad, location) for text in texts)]
    return [text_of(result, good, location), text_of(result, bad, location)]


def _candidates(result: dict[str, Any], location: str) -> list[str]:
    texts, at = result["candidates"], result.get("right", 0)
    if not isinstance(texts, list) or len(texts) < 2 or not isinstance(at, int) or not 0 <= at < len(texts):
        raise DataError(location, "`candidates` and `right` form no choice", "two or more texts, and the number of one")
    texts = [text_of({"candidates": text}, "candidates", location) for text in texts]
    return [texts.pop(at), *texts]
