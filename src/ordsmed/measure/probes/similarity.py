"""Similarity: do cosines of text vectors correlate with human similarity scores (STS)?

sentence1, sentence2, score  ->  a vector each  ->  cosines  ->  Spearman's and Pearson's correlation with the scores
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import DataError
from ordsmed.base.menu import Choice
from ordsmed.base.say import many, say
from ordsmed.learn.score.labels import pearson, spearman
from ordsmed.measure.likelihood.probe import DRAWS, Finding, PairedExample, Record, paths_of, records, text_of
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.measure.vectors.reading import Floats

CORRELATIONS = {"spearman": spearman, "pearson": pearson}


@dataclass(frozen=True)
class ScoredTexts:
    place: str
    first: str
    second: str
    score: float


@dataclass(frozen=True)
class SimilarityRecord(Record):
    pair: str  # place of the pair in its file
    score: float  # human score
    similarity: float  # cosine or dot product of the vectors


@dataclass(frozen=True, kw_only=True)
class Similarity(VectorProbe, Choice):
    """Correlation with human similarity scores of text pairs."""

    files: tuple[str, ...] = ()
    """TSV without quotes, CSV, JSON lines or Parquet"""
    first: str = "sentence1"
    """column of the first text"""
    second: str = "sentence2"
    """column of the second text"""
    score: str = "score"
    """column of the score"""

    RECORD: ClassVar = SimilarityRecord

    @cached_property
    def pairs(self) -> list[ScoredTexts]:
        pairs = [self._pair(location, row) for path in paths_of(self.files) for location, row in records(path)]
        location = ", ".join(self.files)
        if len({pair.score for pair in pairs}) < 2:
            raise DataError(location, f"{many(len(pairs), 'pair')} with the same score", "pairs of different scores")
        if repeated := len(pairs) - len({(pair.first, pair.second) for pair in pairs}):
            say(f"{location}: {many(repeated, 'pair')} repeated: each counts")
        return pairs

    def _pair(self, location: str, row: dict[str, Any]) -> ScoredTexts:
        texts = [text_of(row, key, location) for key in (self.first, self.second)]
        try:
            score = float(row[self.score])
        except KeyError:
            keys = ", ".join(list(row)[:8])
            raise DataError(location, f"has no `{self.score}` (keys: {keys})", f"`{self.score}`, a number") from None
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score):
            raise DataError(location, f"`{self.score}` is {str(row[self.score])[:40]!r}", "a number")
        return ScoredTexts(location, texts[0], texts[1], score)

    def groups(self) -> dict[str, Sequence[str]]:
        return {"": list(dict.fromkeys(text for pair in self.pairs for text in (pair.first, pair.second)))}

    def records(self, vectors: Mapping[str, Floats]) -> list[SimilarityRecord]:
        number = {text: n for n, text in enumerate(self.groups()[""])}
        first, second = (
            vectors[""][[number[getattr(pair, side)] for pair in self.pairs]] for side in ("first", "second")
        )
        cosines = np.einsum("nd,nd->n", first, second, dtype=np.float64)
        return [
            SimilarityRecord(p.place, p.score, value) for p, value in zip(self.pairs, cosines.tolist(), strict=True)
        ]

    def finding(self, records: list[SimilarityRecord]) -> Finding:
        gold, cosines = (np.array([getattr(row, name) for row in records]) for name in ("score", "similarity"))
        facts = {name: 100 * score(gold, cosines) for name, score in CORRELATIONS.items()}
        chance = np.random.default_rng(0)
        rows = [chance.integers(len(gold), size=len(gold)) for _ in range(DRAWS)]
        errors = {
            name: float(np.std([100 * score(gold[row], cosines[row]) for row in rows], ddof=1))
            for name, score in CORRELATIONS.items()
        }
        options = f"errors from {DRAWS:,} bootstrap samples of the pairs"
        return Finding({**facts, "pairs": len(records)}, errors, dict.fromkeys(facts, 0.0), note=options)

    def as_line(self, record: SimilarityRecord) -> dict[str, Any]:
        return dict(vars(record))

    def compared(self, records: list[SimilarityRecord]) -> list[PairedExample]:
        """Return nothing, because a correlation is not a mean over pairs."""
        return []
