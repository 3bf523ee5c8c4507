"""Retrieval: are the passages relevant to a question among the nearest ones by vector?

a set of questions, passages and judgments  ->  exact search by vectors, by BM25, or by both  ->  nDCG@10, MRR@10, ...

Scores equal those of trec_eval (learn/score/ranking.py), in per cent, over every question with judgments; BM25 is
reported for comparison. A model with one vector per token (late interaction) is searched by exact MaxSim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.learn.embedding.maxsim import TokenRows
from ordsmed.learn.score.paired_tests import clustered
from ordsmed.learn.score.ranking import MEASURES, by_chance, measures
from ordsmed.measure.likelihood.probe import Finding, PairedExample, Record
from ordsmed.measure.vectors.probe import VectorProbe
from ordsmed.measure.vectors.reading import Floats
from ordsmed.measure.vectors.sets import RetrievalSet, read_set
from ordsmed.text.bm25 import Bm25, blended, fused
from ordsmed.use.index.nearest import NUMBERS, nearest
from ordsmed.use.index.nearest_tokens import nearest_tokens

TOGETHER = 128  # largest number of questions per search
SHOWN = 10  # passages stored in a record
BY_VECTORS, BY_WORDS, BY_BOTH = RANKINGS = ("vectors", "bm25", "hybrid")


@dataclass(frozen=True)
class RetrievalRecord(Record):
    """Scores of a question by each ranking, in the order of `MEASURES`."""

    question: str
    chance: list[float]  # expected scores of a random ranking
    vectors: list[float]
    bm25: list[float]
    hybrid: list[float]
    first: list[str]  # ids of the first passages


@dataclass(frozen=True, kw_only=True)
class Retrieval(VectorProbe, Choice):
    """Ranking quality of passages that are searched by vector."""

    files: tuple[str, ...] = ()
    """folder in BEIR's format (corpus.jsonl, queries.jsonl, qrels/test.tsv), or SQuAD files"""
    split: str = "test"
    """judgments of a folder to read, qrels/SPLIT.tsv"""
    hybrid: bool | float = False
    """score the ranking that combines vectors and BM25: true, by reciprocal ranks; a number from 0 to 1, by scores, as
    the weight of the vectors"""
    query: str | None = None
    """prompt before questions; default: as the model was trained, otherwise none"""
    passage: str | None = None
    """prompt before passages; default: as the model was trained, otherwise none"""
    depth: int = 1000
    """passages ranked per question; MAP is computed over them"""
    same_id: bool = True
    """false: leave out the passage with the question's id, as usual for ArguAna and Quora"""
    memory: int = 64
    """memory of a search for vectors and similarities, in MB"""

    HOW: ClassVar[tuple[str, ...]] = (*VectorProbe.HOW, "memory")
    RECORD: ClassVar = RetrievalRecord
    TOKENS: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least(self, depth=100, memory=1, batch=1)
        if not 0 <= self.hybrid <= 1:
            raise ValueError(f"hybrid: found {self.hybrid:g}; wanted true, false or a weight from 0 to 1")

    @cached_property
    def set(self) -> RetrievalSet:
        return read_set(self.files, self.split)

    def groups(self) -> dict[str, Sequence[str]]:
        return {"passage": [*self.set.passages.values()], "query": [*self.set.questions.values()]}

    def prompts(self) -> dict[str, str]:
        return {name: text for name in ("query", "passage") if (text := getattr(self, name)) is not None}

    def records(self, vectors: Mapping[str, Floats | TokenRows]) -> list[RetrievalRecord]:
        names, passages = [*self.set.passages], [*self.set.passages.values()]
        numbers = {} if self.same_id else {name: n for n, name in enumerate(names)}
        words, result = Bm25.of(passages), []
        by_vectors = self._nearest(vectors["query"], vectors["passage"])
        for (question, text), nearest_passages in zip(self.set.questions.items(), by_vectors, strict=True):
            itself = numbers.get(question, -1)
            pair = nearest_passages, words.search(text, self.depth + 1)
            dense, worded = ([part[ranked[0] != itself][: self.depth] for part in ranked] for ranked in pair)
            together = self._combined(dense, worded)[: self.depth]
            rankings = dict(zip(RANKINGS, [dense[0], worded[0], together], strict=True))
            grades = self.set.grades[question]
            scores = {
                ranking: measures([grades.get(names[n], 0) for n in ranked.tolist()], [*grades.values()])
                for ranking, ranked in rankings.items()
            }
            first = [names[n] for n in rankings[self.ranking][:SHOWN].tolist()]
            random = by_chance(len(names), [*grades.values()], self.depth)
            result.append(RetrievalRecord(question, random, **scores, first=first))
        return result

    @property
    def ranking(self) -> str:
        return BY_VECTORS if self.hybrid is False else BY_BOTH

    def _combined(self, dense: Sequence[np.ndarray], words: Sequence[np.ndarray]) -> np.ndarray:
        if isinstance(self.hybrid, bool):
            return fused([dense[0], words[0]])[0]
        return blended(dense, words, self.hybrid)[0]

    def _nearest(
        self, questions: Floats | TokenRows, passages: Floats | TokenRows
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield passage numbers and similarities for each question, best first; ties keep the passages' order."""
        if isinstance(questions, TokenRows):
            assert isinstance(passages, TokenRows)
            yield from nearest_tokens(passages, questions, self.depth + 1, self.memory << 20)
            return
        assert not isinstance(passages, TokenRows)
        half = self.memory << 19  # bytes: one half for the scores of a block, one for the best results so far
        scores = max(half // (24 * torch.get_num_threads()), 1 << 14)
        together = math.isqrt(half * scores // (12 * (self.depth + 1) * len(passages)))
        together = min(max(together, 1), TOGETHER)
        for begin in range(0, len(questions), together):
            block = torch.from_numpy(np.array(questions[begin : begin + together]))
            similarities, numbers = nearest(passages, block, self.depth + 1, min(NUMBERS, scores), scores)
            yield from zip(numbers.numpy(), similarities.numpy(), strict=True)

    def finding(self, records: list[RetrievalRecord]) -> Finding:
        scores = {name: 100 * np.array([getattr(row, name) for row in records]) for name in RANKINGS}
        chance = 100 * np.mean([row.chance for row in records], 0)
        main = [clustered(column, *_independent(records)) for column in scores[self.ranking].T.tolist()]
        facts = {name: statistics.mean for name, statistics in zip(MEASURES, main, strict=True)}
        errors = {name: statistics.error for name, statistics in zip(MEASURES, main, strict=True)}
        shown = {name: scores[name] for name in RANKINGS if name in (BY_VECTORS, BY_WORDS, self.ranking)}
        shown[f"{self.ranking} less {BY_WORDS}"] = scores[self.ranking] - scores[BY_WORDS]
        table = [[name, *_cells(values, records)] for name, values in shown.items()]
        head = ["ranking", *(word for name in MEASURES for word in (name, "±"))]
        return Finding(
            {**facts, "questions": len(records)},
            errors,
            dict(zip(MEASURES, chance.tolist(), strict=True)),
            [("rankings, with 95 % intervals by questions", head, table)],
        )

    def as_line(self, record: RetrievalRecord) -> dict[str, Any]:
        main, words = (dict(zip(MEASURES, getattr(record, name), strict=True)) for name in (self.ranking, BY_WORDS))
        return {"question": record.question, **main, BY_WORDS: words, "first": record.first}

    def compared(self, records: list[RetrievalRecord]) -> list[PairedExample]:
        scores = [zip(MEASURES, getattr(record, self.ranking), strict=True) for record in records]
        return [
            PairedExample(record.question, "", {name: 100 * value for name, value in values})
            for record, values in zip(records, scores, strict=True)
        ]


def _independent(records: Sequence[RetrievalRecord]) -> tuple[list[float], list[str]]:
    return [1.0] * len(records), [""] * len(records)


def _cells(values: np.ndarray, records: Sequence[RetrievalRecord]) -> Iterator[float]:
    for column in values.T.tolist():
        statistics = clustered(column, *_independent(records))
        yield from (statistics.mean, statistics.interval[1] - statistics.mean)
