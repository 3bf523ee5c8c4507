"""Measures of rankings, computed for each question as trec_eval does.

grades of a search's results, best first; grades of all judgments  ->  nDCG@10, MRR@10, recall@100, MAP

A grade above 0 is relevant; a passage without a judgment has 0. The gain of a grade is the grade (not 2^grade - 1), and
a question without relevant passages scores 0 and counts. trec_eval ranks equal scores by their ids, the last id first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

MEASURES = ("ndcg@10", "mrr@10", "recall@100", "map")
FIRST, MANY = 10, 100


def measures(ranked: ArrayLike, grades: Sequence[int]) -> list[float]:
    """Return each of MEASURES, from 0 to 1, for one question; `grades` are of all passages that have a judgment."""
    gains = np.maximum(np.asarray(ranked, np.float64), 0)
    best = np.sort(np.maximum(np.asarray(grades, np.float64), 0))[::-1]
    at, count = np.flatnonzero(gains) + 1, np.count_nonzero(best)
    if not len(at):
        return [0.0] * len(MEASURES)
    reciprocal = 1 / at[0] if at[0] <= FIRST else 0.0
    precisions = np.arange(1, len(at) + 1) / at
    recall = (at <= MANY).sum() / count
    return [_dcg(gains) / _dcg(best), float(reciprocal), float(recall), float(precisions.sum() / count)]


def _dcg(gains: np.ndarray) -> float:
    first = gains[:FIRST]
    return float((first / np.log2(np.arange(2, len(first) + 2))).sum())


def by_chance(passages: int, grades: Sequence[int], depth: int) -> list[float]:
    """Return the expectation of each of MEASURES for passages in random order, ranked to a depth."""
    gains = np.sort(np.maximum(np.asarray(grades, np.float64), 0))[::-1]
    count, at = np.count_nonzero(gains), np.arange(1, min(depth, passages) + 1)
    if not count:
        return [0.0] * len(MEASURES)
    ndcg = gains.sum() / passages * (1 / np.log2(at[:FIRST] + 1)).sum() / _dcg(gains)
    none_before = np.cumprod(np.append(1, np.maximum(1 - count / (passages + 1 - at[: FIRST - 1]), 0)))[: len(at)]
    first = none_before * np.minimum(count / (passages + 1 - at[:FIRST]), 1)
    precision = (1 + (at - 1) * (count - 1) / max(passages - 1, 1)) / at
    recall = min(MANY, len(at)) / passages
    return [float(ndcg), float((first / at[:FIRST]).sum()), recall, float(precision.sum() / passages)]
