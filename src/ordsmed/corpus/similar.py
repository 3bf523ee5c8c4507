"""Find similar pairs in buckets, and decide which documents are dropped.

Documents are ranked by preference, and run files contain ranks. The bands are searched one after another. Buckets hold
only documents that are not dropped so far, which makes template pages and mirrors cheap. In a bucket the best document
is compared with all others, then the best of the remaining ones, and so on, at most PIVOTS times.

An estimate within ERRORS standard errors of the threshold is decided by the texts. A document whose texts were compared
EXACT times without success is one of many copies of a template; it is dropped only by an estimate that needs no text.

The dropped documents follow from all similar pairs found so far. A dropped document comes back if the one it is similar
to is dropped itself. It is then compared again, until nothing changes. The outcome is the same as taking documents one
by one.
"""

import numpy as np

from ordsmed.base.say import Progress
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.buckets import MatchingWork, buckets, firsts, parts_of_keys
from ordsmed.corpus.signatures import Array, overlap, shingles

PIVOTS = 64  # documents of a bucket with which the others are compared
EXACT = 4  # how many of these comparisons may use the texts, if the estimate is uncertain
PAIRS = 1 << 14  # pairs estimated at once
BLOCK = 1 << 18  # pairs converted at once
WAVES = 64  # rounds of changes that follow from changes, before all pairs are walked through
KEPT, FRESH = 1, 2  # states of a document; 0: dropped, or a twin


class SimilarPairs:
    """Sorted similar pairs of ranks, worse << 32 | better, and the dropped ranks: those similar to a rank that is kept.

    Whether a rank is dropped depends only on better ranks. New pairs change it for a few ranks, these change it for a
    few worse ranks, and so on. If this takes too many rounds, all pairs are walked through in order of rank.
    """

    def __init__(self, total: int) -> None:
        self.pairs, self.similarity = np.empty(0, "<u8"), np.empty(0, "<f4")
        self.turned = np.empty(0, "<u8")  # better << 32 | worse, sorted
        self.dropped: Array = np.zeros(total, bool)

    def add(self, pairs: list[Array], similarity: list[Array]) -> None:
        more, similarities = np.concatenate(pairs), np.concatenate(similarity)
        order = np.argsort(more, kind="stable")
        more, similarities = more[order], similarities[order]
        at = np.searchsorted(self.pairs, more, "right")
        self.pairs, self.similarity = np.insert(self.pairs, at, more), np.insert(self.similarity, at, similarities)
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
        """Return for each rank, which is the worse one of a pair, whether one of its better ones is kept."""
        better, starts = _partners(self.pairs, ranks)
        return np.logical_or.reduceat(~self.dropped[better], starts) if len(ranks) else np.zeros(0, bool)


def split(pairs: Array) -> tuple[Array, Array]:
    return (pairs >> np.uint64(32)).astype("<u4"), pairs.astype("<u4")


def _partners(pairs: Array, ranks: Array) -> tuple[Array, Array]:
    """Return the second ranks of all pairs whose first is one of `ranks`, and where those of each rank begin."""
    low, high = (np.searchsorted(pairs, (ranks.astype("<u8") + np.uint64(n)) << np.uint64(32)) for n in (0, 1))
    sizes = high - low
    starts = np.cumsum(sizes) - sizes
    return split(pairs[np.repeat(low - starts, sizes) + np.arange(sizes.sum())])[1], starts


def _joined(worse: Array, better: Array) -> Array:
    return (worse.astype("<u8") << np.uint64(32)) | better


def similar_pairs(work: MatchingWork, twin: Array, map_in_order: MapInOrder) -> SimilarPairs:
    """Return the similar pairs that decide which documents are kept; two kept documents are never a similar pair."""
    total = len(twin)
    is_unique = twin == np.arange(total, dtype="<u4")
    pairs_so_far, dissimilar = SimilarPairs(total), np.empty(0, "<u8")
    fresh = is_unique  # not yet compared with all documents that are currently kept
    while fresh.any():
        again = np.zeros(total, bool)
        with Progress("match", work.lanes - work.exact, "bands") as progress:
            for lane in range(work.exact, work.lanes):
                kept = is_unique & ~pairs_so_far.dropped
                np.save(work.folder / "state.npy", kept.astype(np.uint8) + (kept & fresh))  # 0, KEPT or FRESH
                np.save(work.folder / "apart.npy", dissimilar)
                new = list(map_in_order(_compare, ((work, lane, *part) for part in parts_of_keys(total))))
                pairs_so_far.add([pairs for pairs, _, _ in new], [similarity for _, similarity, _ in new])
                dissimilar = np.sort(np.concatenate([dissimilar, *(unlike for _, _, unlike in new)]))
                again |= pairs_so_far.dropped
                for pairs, _, _ in new:
                    again[split(pairs)[0]] = True
                progress.add(1, notes=["(saved continuously)"])
        fresh = again & is_unique & ~pairs_so_far.dropped
    return pairs_so_far


def _compare(work: MatchingWork, lane: int, part: int, parts: int) -> tuple[Array, Array, Array]:
    """Return the similar pairs of a band's buckets, their similarity, and the pairs whose texts are not similar."""
    state = work.open("state")
    group, rank = buckets(work, lane, part, parts, state)
    compare = PairComparison(work)
    pairs, similarity = [np.empty(0, "<u8")], [np.empty(0, "<f4")]
    for number in range(PIVOTS):
        group, rank = _worth(group, rank, state)
        if not len(group):
            break
        first = firsts(group)
        pivot = rank[first][np.cumsum(first) - 1][~first]
        group, rank = group[~first], rank[~first]
        compared = ((state[rank] == FRESH) | (state[pivot] == FRESH)) & (rank >= work.against)
        like, how_like = compare(rank[compared], pivot[compared], exactly=number < EXACT)
        is_similar = np.zeros(len(rank), bool)
        is_similar[np.flatnonzero(compared)[like]] = True
        pairs.append(_joined(rank[is_similar], pivot[is_similar]))
        similarity.append(how_like[like])
        group, rank = group[~is_similar], rank[~is_similar]
    return np.concatenate(pairs), np.concatenate(similarity), np.array(sorted(compare.unlike), "<u8")


def _worth(group: Array, rank: Array, state: Array) -> tuple[Array, Array]:
    if not len(group):
        return group, rank
    starts = np.flatnonzero(firsts(group))
    sizes = np.diff(np.append(starts, len(group)))
    fresh = np.logical_or.reduceat(state[rank] == FRESH, starts)
    is_compared = np.repeat((sizes > 1) & fresh, sizes)
    return group[is_compared], rank[is_compared]


class PairComparison:
    """Compares pairs of ranks by their signatures, or by their texts if the estimate is uncertain."""

    def __init__(self, work: MatchingWork) -> None:
        self.work = work
        self.order, self.apart = work.open("order"), work.open("apart")
        self.bytes = [work.open(f"bytes-{run}") for run in range(len(work.starts))]
        self.starts = np.array(work.starts)
        self.unlike = list[int]()

    def __call__(self, worse: Array, better: Array, *, exactly: bool) -> tuple[Array, Array]:
        options = self.work.how
        similarity = np.empty(len(worse), "<f4")
        for start in range(0, len(worse), PAIRS):
            block = slice(start, start + PAIRS)
            similarity[block] = self._estimate(worse[block], better[block])
        if not self.work.text:
            return similarity >= options.threshold, similarity
        close = np.abs(similarity - options.threshold) < options.doubt()
        like = (similarity >= options.threshold) & ~close
        if exactly:
            at = np.flatnonzero(close & (self._tried(worse) < EXACT) & ~self._known_apart(worse, better))
            similarity[at] = self._exact(worse[at], better[at])
            like[at] = similarity[at] >= options.threshold
            self.unlike += _joined(worse[at], better[at])[~like[at]].tolist()
        return like, similarity

    def _tried(self, ranks: Array) -> Array:
        first = _joined(ranks, np.zeros(1, "<u4"))
        return np.searchsorted(self.apart, first + np.uint64(1 << 32)) - np.searchsorted(self.apart, first)

    def _known_apart(self, worse: Array, better: Array) -> Array:
        if not len(self.apart):
            return np.zeros(len(worse), bool)
        pairs = _joined(worse, better)
        return self.apart[np.minimum(np.searchsorted(self.apart, pairs), len(self.apart) - 1)] == pairs

    def _estimate(self, worse: Array, better: Array) -> Array:
        """Return the share of equal numbers, corrected for bytes that agree by chance."""
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
        """Return the exact similarities. Pairs are sorted by bucket, so many in a row have the same better document."""
        assert self.work.text
        similarities, last, shingles_of_better = list[float](), -1, np.empty(0)
        for w, b in zip(self.order[worse].tolist(), self.order[better].tolist(), strict=True):
            if b != last:
                last, shingles_of_better = b, shingles(self.work.text(b), self.work.how)
            similarities.append(overlap(shingles_of_better, shingles(self.work.text(w), self.work.how)))
        return similarities
