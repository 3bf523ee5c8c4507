"""Predictions for text pairs: computed from vectors, scored, written and read.

vectors -> for each record the similarity of its pair, and the rank of its positive among all texts
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from ordsmed.base.errors import DataError
from ordsmed.base.files import write_text
from ordsmed.base.say import many
from ordsmed.data.features import Features
from ordsmed.data.pieces import Ints
from ordsmed.learn.embedding.maxsim import TokenRows, maxsim_pairs, maxsim_with_all
from ordsmed.learn.embedding.records import PairRecords
from ordsmed.learn.score.labels import pearson, spearman
from ordsmed.learn.task import Arrays
from ordsmed.text.read import lines

AT_ONCE = 1 << 24  # most similarities in memory
COLUMNS = ("line", "similarity", "rank", "score")
BEST = 10  # ranks within which mrr and recall count a positive
PAIRS = 64  # pairs of texts with token vectors, compared at a time
Vectors = NDArray[np.float32] | TokenRows


@dataclass(frozen=True)
class PairPredictions:
    similar: NDArray[np.float64]  # of anchor and positive of each record
    rank: NDArray[np.int64]  # of the positive, not counting other right texts; 1 is the best
    shares: None = None

    @property
    def values(self) -> list[float]:
        return [float(score) for score in self.similar]


def predictions(records: PairRecords, vectors: Vectors) -> PairPredictions:
    """Return the predictions from the vector of every text, or from the vectors of its tokens."""
    anchors, positives, passages = records.anchors, records.positives, _from(vectors, records.queries)
    similar = _pairwise(vectors, anchors, positives)
    rank = np.empty(len(records), np.int64)
    right = records.right()
    size = max(1, AT_ONCE // max(len(passages), 1))
    for begin in range(0, len(records), size):
        part = slice(begin, begin + size)
        of_all = _with_all(vectors, anchors[part], passages)
        positive = of_all[np.arange(len(of_all)), positives[part] - records.queries]
        above = of_all > positive[:, None]
        for row, anchor in enumerate(anchors[part].tolist()):
            above[row, right[anchor]] = False
        rank[part] = 1 + above.sum(1)
    return PairPredictions(similar, rank)


def _from(vectors: Vectors, first: int) -> Vectors:
    return TokenRows(vectors.vectors, vectors.starts[first:]) if isinstance(vectors, TokenRows) else vectors[first:]


def _pairwise(vectors: Vectors, anchors: Ints, texts: Ints) -> NDArray[np.float64]:
    if isinstance(vectors, TokenRows):
        parts = [np.arange(begin, min(begin + PAIRS, len(anchors))) for begin in range(0, len(anchors), PAIRS)]
        sums = [maxsim_pairs(vectors.padded(anchors[some]), vectors.padded(texts[some])) for some in parts]
        return np.asarray(torch.cat(sums), np.float64)
    return np.asarray(np.einsum("nd,nd->n", vectors[anchors], vectors[texts], dtype=np.float64))


def _with_all(vectors: Vectors, anchors: Ints, passages: Vectors) -> NDArray[np.float32]:
    """Return the similarity of some anchors and every passage; equal anchors with token vectors are compared once."""
    if isinstance(vectors, TokenRows):
        assert isinstance(passages, TokenRows)
        different, inverse = np.unique(anchors, return_inverse=True)
        return np.asarray(maxsim_with_all(vectors.padded(different), passages))[inverse]
    assert not isinstance(passages, TokenRows)
    return vectors[anchors] @ passages.T


def reranked(records: PairRecords, scores: NDArray[np.float32]) -> PairPredictions:
    """Return the predictions from the score of every candidate; ranks are among the candidates of a record."""
    sizes = np.diff(records.first) - 1
    starts = np.cumsum(sizes) - sizes
    similar = scores[starts].astype(np.float64)
    rank = 1 + np.add.reduceat(scores > np.repeat(scores[starts], sizes), starts)
    return PairPredictions(similar, rank.astype(np.int64))


def shuffled(records: PairRecords) -> PairPredictions:
    """Return a baseline: equal similarities, and all ranks among the candidates of a record equally often."""
    count = len(records)
    return PairPredictions(np.zeros(count), 1 + np.arange(count) % (np.diff(records.first) - 1))


def score(records: PairRecords, predicted: PairPredictions, *, by_scores: bool) -> dict[str, float]:
    """Return scores in per cent: correlation of similarities and gold scores, or measures of the positives' ranks."""
    if by_scores:
        known = ~np.isnan(records.gold)
        if not known.any():
            return {}
        pair = records.gold[known], predicted.similar[known]
        return {"spearman": 100 * spearman(*pair), "pearson": 100 * pearson(*pair)}
    within = predicted.rank <= BEST
    return {
        f"mrr@{BEST}": 100 * float(np.where(within, 1 / predicted.rank, 0).mean()),
        "accuracy@1": 100 * float((predicted.rank == 1).mean()),
        f"recall@{BEST}": 100 * float(within.mean()),
    }


def count_scored(records: PairRecords, *, by_scores: bool) -> int:
    return int((~np.isnan(records.gold)).sum()) if by_scores else len(records)


def guesses(records: PairRecords) -> PairPredictions:
    """Return a baseline: equal similarities, and all ranks among all passages equally often."""
    passages, count = len(records.texts) - records.queries, len(records)
    return PairPredictions(np.zeros(count), 1 + np.arange(count) * passages // count)


def write(folder: Path, records: PairRecords, predicted: PairPredictions) -> list[Path]:
    gold = ["" if np.isnan(value) else f"{value:.9g}" for value in records.gold]
    similar, rank = (f"{value:.9g}" for value in predicted.similar), map(str, predicted.rank)
    rows = [COLUMNS, *zip(records.locations, similar, rank, gold, strict=True)]
    write_text(folder / "pairs.tsv", "".join("\t".join(row) + "\n" for row in rows))
    return [folder / "pairs.tsv"]


def read(path: Path, records: PairRecords) -> PairPredictions:
    rows = [line.split("\t") for line in lines(path) if line]
    if tuple(rows[:1][0] if rows else ()) != COLUMNS:
        raise DataError(path, "an unknown first line", "the columns " + ", ".join(COLUMNS))
    by_place = {row[0]: row for row in rows[1:]}
    absent = [location for location in records.locations if location not in by_place]
    if absent:
        raise DataError(path, f"{many(len(absent), 'pair')} missing, first line {absent[0]}", "every pair of the files")
    try:
        chosen = [by_place[location] for location in records.locations]
        return PairPredictions(np.array([float(row[1]) for row in chosen]), np.array([int(row[2]) for row in chosen]))
    except (ValueError, IndexError):
        raise DataError(path, "a line without similarity and rank", "a file that `ordsmed predict` wrote") from None


def details(records: PairRecords, predicted: PairPredictions) -> list[tuple[str, list[str], list[list[object]]]]:
    limits = [1, 3, BEST, 100]
    rows: list[list[object]] = [[f"first {limit}", 100 * float((predicted.rank <= limit).mean())] for limit in limits]
    return [("ranks of positives", ["among the", "share"], rows)]


class PairFiles:
    """Base of tasks over pairs: files and tables of predictions; nothing is chosen on dev files."""

    def fitted(self, records: PairRecords, features: Features, answers: Arrays) -> Self:
        return self

    def write(self, folder: Path, records: PairRecords, predictions: PairPredictions) -> list[Path]:
        return write(folder, records, predictions)

    def read(self, path: Path, records: PairRecords) -> PairPredictions:
        return read(path, records)

    def details(
        self, records: PairRecords, predictions: PairPredictions
    ) -> list[tuple[str, list[str], list[list[object]]]]:
        return details(records, predictions)
