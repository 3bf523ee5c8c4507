"""Hard negatives for pairs: texts of the files that are similar to an anchor, but do not belong to it.

    by BM25: texts that share words with the anchor     by the model: texts with similar vectors, in a range of ranks

Negatives by the model are chosen again during training, as [K, 2]: a record, and the number of a wrong text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.base.checks import at_least
from ordsmed.base.say import many, say
from ordsmed.data.pieces import Ints
from ordsmed.data.windows import run
from ordsmed.learn.embedding.records import PairRecords
from ordsmed.text.bm25 import Bm25, top

AT_ONCE = 1 << 24  # most similarities in memory
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Mining:
    count: int = 0
    """negatives to add to each pair; 0: none; elsewhere num_negatives"""
    every: int | Literal["epoch"] = 0
    """steps between two searches; 0: search once, with the initial model"""
    ranks: tuple[int, int] = (1, 50)
    """ranks of similarity from which negatives are drawn; 1 is the most similar wrong text; elsewhere range_min,
    range_max"""
    margin: float | None = None
    """skip a text unless it is less similar to the anchor than the positive by this margin, because it may be right;
    elsewhere absolute_margin"""

    def __post_init__(self) -> None:
        at_least(self, count=0)
        if isinstance(self.every, int) and self.every < 0:
            raise ValueError(f"every: found {self.every}; wanted steps, epoch, or 0: once")
        if not (len(self.ranks) == 2 and 1 <= self.ranks[0] <= self.ranks[1]):
            raise ValueError(f"ranks: found {list(self.ranks)}; wanted the first and the last, as [1, 50]")
        if self.count > self.ranks[1] - self.ranks[0] + 1:
            raise ValueError(f"count: found {self.count}, more than there are ranks in {list(self.ranks)}")
        if not self.count and (self.every or self.margin is not None):
            raise ValueError("count: missing; wanted the number of negatives, such as 4")

    def steps(self, epoch: float) -> int:
        """Return the number of steps between two searches, given the steps of an epoch; 0: search only once."""
        return max(1, round(epoch)) if self.every == "epoch" else self.every


def with_negatives(records: PairRecords, count: int) -> PairRecords:
    """Return the records, each with up to `count` more negatives, the best wrong texts by BM25."""
    ranking = Bm25.of(records.texts[records.queries :])
    right = records.right()
    negatives: dict[int, Ints] = {}
    for anchor in np.unique(records.anchors).tolist():
        best, _ = ranking.search(records.texts[anchor], count + len(right[anchor]))
        wrong = [int(passage) for passage in best if int(passage) not in right[anchor]]
        negatives[anchor] = np.array(wrong[:count], np.int64) + records.queries
    added = []
    for record, anchor in enumerate(records.anchors.tolist()):
        fresh = negatives[anchor]
        added.append(fresh[~np.isin(fresh, records.members[records.first[record] : records.first[record + 1]])])
    first, members, scores = with_added(records.first, records.members, records.scores, pairs_of(added))
    more = len(members) - len(records.members)
    say(f"{records.files[0]}: {many(more, 'hard negative')} by BM25 for {many(len(records), 'pair')}")
    return replace(records, first=first, members=members, scores=scores)


def mined_negatives(vectors: Floats, records: PairRecords, settings: Mining, *key: object) -> Ints:
    """Return wrong texts with vectors similar to each anchor's, as [K, 2] (record, text); report their number."""
    anchors, positives, passages = records.anchors, records.positives, vectors[records.queries :]
    right, near, added = records.right(), 0, []
    size = max(1, AT_ONCE // max(len(passages), 1))
    for begin in range(0, len(records), size):
        part = slice(begin, begin + size)
        for row, similar in enumerate(vectors[anchors[part]] @ passages.T):
            record, limit = begin + row, np.inf
            if settings.margin is not None:
                limit = similar[positives[record] - records.queries] - settings.margin
            similar[right[int(anchors[record])]] = -np.inf
            similar[records.members[records.first[record] + 2 : records.first[record + 1]] - records.queries] = -np.inf
            near += int((similar > limit).sum())
            similar[similar > limit] = -np.inf
            best = top(similar, settings.ranks[1])
            best = best[similar[best] > -np.inf][settings.ranks[0] - 1 :]
            added.append(_drawn(best, settings.count, chance.key("mined", *key, record)) + records.queries)
    _report(records, added, settings, near)
    return pairs_of(added)


def _drawn(best: Ints, count: int, key: int) -> Ints:
    if len(best) <= count:
        return best
    return best[np.sort(np.argsort(chance.unit(key, np.arange(len(best))))[:count])]


def _report(records: PairRecords, added: Sequence[Ints], settings: Mining, near: int) -> None:
    few = sum(len(texts) < settings.count for texts in added)
    notes = [f"{many(sum(map(len, added)), 'hard negative')} by the model for {many(len(records), 'pair')}"]
    if settings.margin is not None:
        notes.append(f"{near:,} skipped that may be right")
    if few:
        notes.append(f"fewer than {settings.count} for {few:,}")
    say(f"{records.files[0]}: {'; '.join(notes)}")


def pairs_of(added: Sequence[Ints]) -> Ints:
    """Convert a list of texts per record to [K, 2] (record, text)."""
    record = np.repeat(np.arange(len(added)), [len(texts) for texts in added])
    return np.stack([record, np.concatenate([np.zeros(0, np.int64), *added])], 1)


def with_added(
    first: Ints, members: Ints, scores: NDArray[np.float64], added: Ints
) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """Return `first`, `members` and `scores` of records, with the negatives `added` after the members they have."""
    known, more = np.diff(first), np.bincount(added[:, 0], minlength=len(first) - 1)
    begins = np.concatenate([[0], np.cumsum(known + more)])
    every = np.empty(int(begins[-1]), np.int64)
    every_score = np.full(len(every), np.nan)
    before = np.repeat(begins[:-1], known) + run(known)
    every[before], every_score[before] = members, scores
    every[np.repeat(begins[:-1] + known, more) + run(more)] = added[:, 1]
    return begins, every, every_score
