"""Hard negatives for pairs: texts of the files that share the anchor's words, but do not belong to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordsmed.base.say import many, say
from ordsmed.data.pieces import Ints
from ordsmed.learn.embedding.records import PairRecords
from ordsmed.text.bm25 import Bm25


def with_negatives(records: PairRecords, count: int) -> PairRecords:
    """Each record with at most so many more negatives: what BM25 finds first for its anchor among all texts."""
    ranking = Bm25.of(records.texts[records.queries :])
    right = records.right()
    added: dict[int, Ints] = {}
    for anchor in np.unique(records.anchors).tolist():
        best, _ = ranking.search(records.texts[anchor], count + len(right[anchor]))
        wrong = [int(passage) for passage in best if int(passage) not in right[anchor]]
        added[anchor] = np.array(wrong[:count], np.int64) + records.queries
    members = []
    for begin, end in zip(records.first[:-1].tolist(), records.first[1:].tolist(), strict=True):
        known = records.members[begin:end]
        fresh = added[int(known[0])]
        members.append(np.concatenate([known, fresh[~np.isin(fresh, known)]]))
    sizes = [len(part) for part in members]
    first = np.cumsum([0, *sizes], dtype=np.int64)
    scores = np.full(int(first[-1]), np.nan)
    known_sizes = np.diff(records.first)
    inside = np.arange(len(records.scores)) - np.repeat(records.first[:-1], known_sizes)
    scores[np.repeat(first[:-1], known_sizes) + inside] = records.scores
    more = int(first[-1] - records.first[-1])
    say(f"{records.files[0]}: {many(more, 'hard negative')} by BM25 for {many(len(records), 'pair')}")
    return replace(records, first=first, members=np.concatenate(members), scores=scores)
