"""Similar pairs: who in a bucket is so like a better one that it is dropped.

Documents are ranked by preference; ranks, not numbers, stand in the run files. The search goes over the bands one
after another: buckets hold only documents not dropped so far, which keeps template pages and mirrors cheap. In a bucket
the best is compared with all others, then the best of those that are not similar, and so on, PIVOTS times at most: so
of a bucket of more than PIVOTS documents that are not similar the others are compared with the best PIVOTS only. An
estimate within ERRORS standard errors of the threshold is settled by the texts; a document that was found apart by them
EXACT times is one of many of a template, and is dropped only for an estimate that needs no text. Who is dropped follows
from all similar pairs found so far. One that was dropped comes back when the one it is similar to is dropped itself; it
is compared anew, until nothing changes. So the outcome is that of taking documents one by one.
"""

import numpy as np

from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.buckets import MatchingWork, buckets, firsts, parts_of_keys
from ordsmed.corpus.signatures import Array, overlap, shingles

PIVOTS = 64  # kept documents of one bucket with which its others are compared
EXACT = 4  # of these, with how many by their texts, where the estimate is too close to call
PAIRS = 1 << 14  # pairs estimated at once
BLOCK = 1 << 18  # pairs taken apart at once
WAVES = 64  # of changes that follow from changes
KEPT, FRESH = 1, 2  # 0: dropped, or the twin of another


class SimilarPairs:
    """Similar pairs of ranks, worse << 32 | better, sorted; and who is dropped: whoever is similar to one that is not.

    Taken by rank that is settled from the best on. Pairs that are added change it for a few, those change it for a few
    who are worse, and so on; where that goes on for too long, all are walked through by rank.
    """

    def __init__(self, total: int) -> None:
        self.pairs, self.similarity = np.empty(0, "<u8"), np.empty(0, "<f4")
        self.turned = np.empty(0, "<u8")  # better << 32 | worse, sorted
        self.dropped: Array = np.zeros(total, bool)

    def add(self, pairs: list[Array], similarity: list[Array]) -> None:
        more, alike = np.concatenate(pairs), np.concatenate(similarity)
        order = np.argsort(more, kind="stable")
        more, alike = more[order], alike[order]
        at = np.searchsorted(self.pairs, more, "right")
        self.pairs, self.similarity = np.insert(self.pairs, at, more), np.insert(self.similarity, at, alike)
        worse, better = split(more)
        turned = np.sort(_joined(better, worse))
        self.turned = np.insert(self.turned, np.searchsorted(self.turned, turned), turned)
        self._settle(worse[~self.dropped[better] & ~self.dropped[worse]])

    def _settle(self, changed: Array) -> None:
        changed = changed[firsts(changed)]
        for _ in range(WAVES):
            if not len(changed):
                return
            self.dropped[changed] ^= True
            touched = np.sort(_partners(self.turned, changed)[0])
            touched = touched[firsts(touched)]
            changed = touched[self._similar_to_kept(touched) != self.dropped[touched]]
        dropped = bytearray(len(self.dropped))
        for start in range(0, len(self.pairs), BLOCK):
            worse, better = split(self.pairs[start : start + BLOCK])
            for w, b in zip(worse.tolist(), better.tolist(), strict=True):
                if not dropped[b]:
                    dropped[w] = 1
        self.dropped = np.frombuffer(dropped, bool)

    def _similar_to_kept(self, ranks: Array) -> Array:
        """Of ranks that are the worse of a pair or more: is one of the better ones kept?"""
        better, starts = _partners(self.pairs, ranks)
        return np.logical_or.reduceat(~self.dropped[better], starts) if len(ranks) else np.zeros(0, bool)


def split(pairs: Array) -> tuple[Array, Array]:
    return (pairs >> np.uint64(32)).astype("<u4"), pairs.astype("<u4")


def _partners(pairs: Array, ranks: Array) -> tuple[Array, Array]:
    """The second ones of all pairs of which the first is one of these ranks, and where those of each rank begin."""
    low, high = (np.searchsorted(pairs, (ranks.astype("<u8") + np.uint64(n)) << np.uint64(32)) for n in (0, 1))
    sizes = high - low
    starts = np.cumsum(sizes) - sizes
    return split(pairs[np.repeat(low - starts, sizes) + np.arange(sizes.sum())])[1], starts


def _joined(worse: Array, better: Array) -> Array:
    return (worse.astype("<u8") << np.uint64(32)) | better


def similar_pairs(work: MatchingWork, twin: Array, map_in_order: MapInOrder) -> SimilarPairs:
    """All similar pairs that matter: among those kept in the end there is none."""
    total = len(twin)
    alone = twin == np.arange(total, dtype="<u4")
    pairs_so_far, apart = SimilarPairs(total), np.empty(0, "<u8")
    fresh = alone  # not yet compared with all that are kept now
    while fresh.any():
        again = np.zeros(total, bool)
        with Progress("match", work.lanes - work.exact, "bands") as shown:
            for lane in range(work.exact, work.lanes):
                kept = alone & ~pairs_so_far.dropped
                np.save(work.folder / "state.npy", kept.astype(np.uint8) + (kept & fresh))  # 0, KEPT or FRESH
                np.save(work.folder / "apart.npy", apart)
                new = list(map_in_order(_compare, ((work, lane, *part) for part in parts_of_keys(total))))
                pairs_so_far.add([pairs for pairs, _, _ in new], [similarity for _, similarity, _ in new])
                apart = np.sort(np.concatenate([apart, *(unlike for _, _, unlike in new)]))
                again |= pairs_so_far.dropped
                for pairs, _, _ in new:
                    again[split(pairs)[0]] = True
                shown.add(1, notes=["(kept as it goes)"])
        fresh = again & alone & ~pairs_so_far.dropped
    return pairs_so_far


def _compare(work: MatchingWork, lane: int, part: int, parts: int) -> tuple[Array, Array, Array]:
    """Similar pairs of a band's buckets with their similarity, and pairs whose texts were found not to be similar."""
    state = work.open("state")
    group, rank = buckets(work, lane, part, parts, state)
    compare = PairComparison(work)
    pairs, similarity = [np.empty(0, "<u8")], [np.empty(0, "<f4")]
    for turn in range(PIVOTS):
        group, rank = _worth(group, rank, state)
        if not len(group):
            break
        first = firsts(group)
        pivot = rank[first][np.cumsum(first) - 1][~first]
        group, rank = group[~first], rank[~first]
        compared = ((state[rank] == FRESH) | (state[pivot] == FRESH)) & (rank >= work.against)
        like, how_like = compare(rank[compared], pivot[compared], exactly=turn < EXACT)
        gone = np.zeros(len(rank), bool)
        gone[np.flatnonzero(compared)[like]] = True
        pairs.append(_joined(rank[gone], pivot[gone]))
        similarity.append(how_like[like])
        group, rank = group[~gone], rank[~gone]
    return np.concatenate(pairs), np.concatenate(similarity), np.array(sorted(compare.unlike), "<u8")


def _worth(group: Array, rank: Array, state: Array) -> tuple[Array, Array]:
    """Buckets of two or more, at least one of them fresh."""
    if not len(group):
        return group, rank
    starts = np.flatnonzero(firsts(group))
    sizes = np.diff(np.append(starts, len(group)))
    fresh = np.logical_or.reduceat(state[rank] == FRESH, starts)
    worth = np.repeat((sizes > 1) & fresh, sizes)
    return group[worth], rank[worth]


class PairComparison:
    """Which pairs of ranks are similar: by their signatures, or by their texts where these settle nothing."""

    def __init__(self, work: MatchingWork) -> None:
        self.work = work
        self.order, self.apart = work.open("order"), work.open("apart")
        self.bytes = [work.open(f"bytes-{run}") for run in range(len(work.starts))]
        self.starts = np.array(work.starts)
        self.unlike = list[int]()

    def __call__(self, worse: Array, better: Array, *, exactly: bool) -> tuple[Array, Array]:
        """Whether each pair is similar, and how much."""
        how = self.work.how
        similarity = np.empty(len(worse), "<f4")
        for start in range(0, len(worse), PAIRS):
            block = slice(start, start + PAIRS)
            similarity[block] = self._estimate(worse[block], better[block])
        if not self.work.text:
            return similarity >= how.threshold, similarity
        close = np.abs(similarity - how.threshold) < how.doubt()
        like = (similarity >= how.threshold) & ~close
        if exactly:
            at = np.flatnonzero(close & (self._tried(worse) < EXACT) & ~self._known_apart(worse, better))
            similarity[at] = self._exact(worse[at], better[at])
            like[at] = similarity[at] >= how.threshold
            self.unlike += _joined(worse[at], better[at])[~like[at]].tolist()
        return like, similarity

    def _tried(self, ranks: Array) -> Array:
        """With how many others each was compared by its text, in vain."""
        first = _joined(ranks, np.zeros(1, "<u4"))
        return np.searchsorted(self.apart, first + np.uint64(1 << 32)) - np.searchsorted(self.apart, first)

    def _known_apart(self, worse: Array, better: Array) -> Array:
        if not len(self.apart):
            return np.zeros(len(worse), bool)
        pairs = _joined(worse, better)
        return self.apart[np.minimum(np.searchsorted(self.apart, pairs), len(self.apart) - 1)] == pairs

    def _estimate(self, worse: Array, better: Array) -> Array:
        """The share of equal numbers, less those whose bytes agree by chance."""
        equal = (self._bytes(worse) == self._bytes(better)).sum(1, dtype=np.int64) / self.work.how.permutations
        return (equal * 256 - 1) / 255

    def _bytes(self, ranks: Array) -> Array:
        numbers = self.order[ranks]
        run = np.searchsorted(self.starts, numbers, "right") - 1
        rows = np.empty((len(ranks), self.work.how.permutations), np.uint8)
        for n in np.unique(run).tolist():
            rows[run == n] = self.bytes[n][numbers[run == n] - self.starts[n]]
        return rows

    def _exact(self, worse: Array, better: Array) -> list[float]:
        """SimilarPairs come sorted by bucket, so that the better one is the same for many in a row."""
        assert self.work.text
        similarities, last, shingles_of_better = list[float](), -1, np.empty(0)
        for w, b in zip(self.order[worse].tolist(), self.order[better].tolist(), strict=True):
            if b != last:
                last, shingles_of_better = b, shingles(self.work.text(b), self.work.how)
            similarities.append(overlap(shingles_of_better, shingles(self.work.text(w), self.work.how)))
        return similarities
