"""Near duplicates by MinHash and LSH, out of core: which documents are so like a better one that they are dropped.

    texts -> signatures (.npy, a row a document) -> run files: for each band of a row its (key, rank), sorted by key
    run files -> buckets of one key, band after band -> pairs -> estimate, or exact where that is too close to call
    pairs -> in order of preference: dropped if and only if similar to a kept one -> Found

A text is case-folded, and only its letters, digits and marks are looked at: copies that differ by white space and
punctuation alone are equal. (Of a text without any, all but white space counts.) A shingle is `shingle` units in a row;
a letter is one unit, an ideograph, kana or Hangul syllable three, so that 7 units are 7 letters or 3 ideographs. A text
too short for one shingle is one shingle. A signature is a one-permutation MinHash: a 64-bit hash of each shingle names
one of `permutations` bins, which keeps the least; an empty bin copies another's, the first that is not empty in an
order of its own. The share of bins in which two signatures agree estimates the Jaccard similarity of the sets of
shingles, with a standard error of about sqrt(J (1 - J) / permutations): 0.04 at 0.7 and 128.

A bucket holds the documents that agree in all `rows` bins of a band. There are as many rows as leave a pair at the
threshold found with probability SURE or more: 5 rows and 25 bands at 0.7 and 128, which find 0.99 of the pairs at
0.7, 0.9999 at 0.8, and offer 1 of 17 pairs at 0.3 in vain. Documents of one signature (or one key) count as one.

Documents are ranked by preference; ranks, not numbers, stand in the run files. The search goes over the bands one
after another: buckets hold only documents not dropped so far, which keeps template pages and mirrors cheap. In a bucket
the best is compared with all others, then the best of those that are not similar, and so on, PIVOTS times at most: so
of a bucket of more than PIVOTS documents that are not similar the others are compared with the best PIVOTS only. An
estimate within ERRORS standard errors of the threshold is settled by the texts; a document that was found apart by them
EXACT times is one of many of a template, and is dropped only for an estimate that needs no text. Who is dropped follows
from all similar pairs found so far. One that was dropped comes back when the one it is similar to is dropped itself; it
is compared anew, until nothing changes. So the outcome is that of taking documents one by one.

Memory: in the calling process 32 bytes a document (a preference given in memory counts in) and 40 a similar pair while
they are merged; in each task 60 bytes for each of at most 2 million entries of a band, or 600 for each of the
documents of a run (RUN, or one file if it has more). On disk, in `folder` while it works: 12 bytes a band and one a
permutation for each document, 450 by default.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ordsmed.base import chance
from ordsmed.base.errors import DataError
from ordsmed.base.files import mapped, survive_disk, sync, write_text, writing
from ordsmed.base.keys import bytes_key
from ordsmed.base.say import Progress

Array = np.ndarray[Any, Any]
Text = Callable[[int], str]
Spread = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]

SURE = 0.985  # the least probability that a pair at the threshold shares a bucket
PIVOTS = 64  # kept documents of one bucket with which its others are compared
EXACT = 4  # of these, with how many by their texts, where the estimate is too close to call
ERRORS = 2  # standard errors from the threshold within which it is
BATCH = 1 << 16  # characters hashed at once: they stay in the processor's cache
RUN = 1 << 17  # documents of a run file
PART = 1 << 21  # entries of a band that a task holds
PAIRS = 1 << 14  # pairs estimated at once
EMPTY = 0xFFFFFFFF  # a bin without a shingle
WIDE = 0x2E80  # the first code of East Asian writing
ODD = np.uint64(chance.GOLDEN)
VERSION = 2  # of signatures: what was signed by another is signed anew
BLANK, SIGN, LETTER = range(3)


@dataclass(frozen=True)
class Near:
    """When two documents are so similar that only the better one is kept."""

    threshold: float = 0.7
    "Jaccard similarity of their sets of shingles from which on the lesser document is dropped"
    shingle: int = 7
    "letters of a shingle, digits and marks among them; an ideograph counts as three"
    permutations: int = 128
    "numbers of a signature: four times as many halve the error of the estimate"
    keep: Literal["longest", "first"] = "longest"
    "which document of a group is kept"
    seed: int = 0
    "of the hashes"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold: found {self.threshold}; wanted more than 0, at most 1")
        for name, least, most in (("shingle", 1, 1000), ("permutations", 16, 4096), ("seed", 0, 2**63)):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted from {least} to {most}")

    def bands(self) -> tuple[int, int]:
        """Bands, and rows of each: the most rows that find a pair at the threshold surely enough."""
        for rows in range(self.permutations, 1, -1):
            bands = self.permutations // rows
            if 1 - (1 - self.threshold**rows) ** bands >= SURE:
                return bands, rows
        return self.permutations, 1

    def doubt(self) -> float:
        """How near to the threshold an estimate settles nothing."""
        return float(ERRORS * (self.threshold * (1 - self.threshold) / self.permutations) ** 0.5)


@dataclass(frozen=True)
class Duplicates:
    """What is dropped, sorted by number; the arrays lie in files of the folder."""

    numbers: Array
    "documents to drop"
    kept: Array
    "for each, the kept document it is similar to"
    similarity: Array
    "and how similar: 1.0 for one key or signature"


@dataclass(frozen=True)
class Group:
    """A kept document and what was dropped for it."""

    kept: int
    size: int
    members: list[tuple[int, float]]
    "some of the dropped: number and similarity, the least similar first"


def signatures(texts: Sequence[str], how: Near) -> Array:
    """A row of `permutations` '<u4' for each text; the same on any machine and in any company."""
    least = np.full(len(texts) * how.permutations, EMPTY, "<u4")
    bins = np.uint64(how.permutations)
    for rows, hashes in _hashed(texts, how):
        place = rows * how.permutations + ((hashes >> np.uint64(32)) * bins >> np.uint64(32)).view(np.int64)
        np.minimum.at(least, place, hashes.astype("<u4"))
    found = least.reshape(len(texts), how.permutations)
    for start in range(0, len(found), 8192):
        _fill(found[start : start + 8192])
    return found


def jaccard(one: str, other: str, how: Near) -> float:
    """The similarity of two texts, exactly."""
    return _overlap(_shingles(one, how), _shingles(other, how))


def find(
    files: Sequence[Path],
    counts: Sequence[int],
    preference: Array | None,
    text: Text | None,
    how: Near,
    folder: Path,
    map_in_order: Spread = starmap,
    *,
    keys: Array | None = None,
    against: int = 0,
) -> Duplicates:
    """Which documents to drop; they are numbered through the files.

    files: signatures, each a .npy of [count, permutations] '<u4'; none: only equal `keys` are duplicates.
    preference: int64 for each document, such as its length: the highest is kept, of equals the first. Without it, and
    where `how.keep` says so, the first is.
    text: the text of a number; it is read to check the files and where an estimate is too close to the threshold.
    Without it, estimates decide.
    spread: an ordered parallel map over tuples of arguments; it pickles them, `text` among them, for other processes.
    keys: 64-bit hashes of the documents' words.
    against: so many documents at the front are preferred to all others and never dropped.
    """
    with survive_disk(folder):
        scratch = _scratch(
            folder, [how, list(counts), against, _sum(keys), _sum(preference), _stamps(files), text is None]
        )
        map_in_order = _remembering(map_in_order, scratch)
        order = _ranked(sum(counts), preference if how.keep == "longest" else None, against, scratch, keys)
        runs = _runs(files, counts)
        work = _MatchingWork(scratch, how, text, against, tuple(run[1] for run in runs), keys is not None, bool(files))
        for _ in map_in_order(_write_run, ((work, *run) for run in runs)):
            pass
        twin = _twins(work, len(order), map_in_order)
        pairs = _similar(work, twin, map_in_order) if files else _Pairs()
        found = _found(folder, order, twin, pairs, against)
        shutil.rmtree(scratch)
    return found


# ---- going on where a search was killed: it is gone through again, and what tasks gave is taken from their files


def _scratch(folder: Path, what: list[Any]) -> Path:
    """The folder of this search; what another one left goes."""
    scratch, key = folder / "near", bytes_key(repr([VERSION, RUN, PART, PIVOTS, *what]).encode())
    mark = scratch / "search"
    if not mark.exists() or mark.read_text(encoding="utf-8") != key:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write_text(mark, key)
    return scratch


def _sum(numbers: Array | None) -> int | None:
    return None if numbers is None else zlib.crc32(np.ascontiguousarray(numbers).data)


def _stamps(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.exists()]


def _remembering(map_in_order: Spread, scratch: Path) -> Spread:
    """A spread whose tasks leave what they gave, so that the same task, counted from the start, is not done again."""
    calls = itertools.count()

    def again(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        call = next(calls)
        return map_in_order(
            _remembered, ((scratch / f"{call}-{n}.npz", function, *task) for n, task in enumerate(tasks))
        )

    return again


def _remembered(path: Path, function: Callable[..., tuple[Array, ...] | None], *task: Any) -> tuple[Array, ...] | None:
    """What the task gives, or gave."""
    cut_off = (FileNotFoundError, ValueError, EOFError, zipfile.BadZipFile)  # then it is done again
    with contextlib.suppress(*cut_off), path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        return tuple(kept[name] for name in kept.files) or None
    found = function(*task)
    with writing(path) as made:
        np.savez(made, *(found or ()))
    return found


def groups(found: Duplicates, limit: int, members: int = 5) -> list[Group]:
    """The documents for which most were dropped, at most `limit` of them."""
    kept, sizes = np.unique(found.kept, return_counts=True)
    biggest = np.lexsort((kept, -sizes))[:limit]
    return [_group(found, int(kept[n]), int(sizes[n]), members) for n in biggest]


def _group(found: Duplicates, kept: int, size: int, members: int) -> Group:
    at = np.flatnonzero(found.kept == kept)
    at = at[np.argsort(found.similarity[at], kind="stable")[:members]]
    return Group(kept, size + 1, [(int(found.numbers[n]), float(found.similarity[n])) for n in at])


# ---- shingles and signatures


def _hashed(texts: Iterable[str], how: Near) -> Iterator[tuple[Array, Array]]:
    """The shingles of many texts in batches: whose they are, and their hashes."""
    rows, held, length = list[int](), list[Array](), 0
    for row, piece in _pieces(texts, how.shingle):
        rows.append(row)
        held.append(piece)
        length += len(piece)
        if length >= BATCH:
            yield _hash(rows, held, how)
            rows, held, length = [], [], 0
    if held:
        yield _hash(rows, held, how)


def _pieces(texts: Iterable[str], shingle: int) -> Iterator[tuple[int, Array]]:
    """Codes of letters: a long text in pieces that overlap by a shingle, a short one filled up to a shingle."""
    for row, text in enumerate(texts):
        codes = _letters(text)
        if len(codes) < shingle:
            units = len(codes) + 2 * int((codes >= WIDE).sum())
            codes = np.append(codes, np.zeros(max(shingle - units, 0), "<u4"))
        for start in range(0, max(len(codes) - shingle + 1, 1), BATCH):
            yield row, codes[start : start + BATCH + shingle - 1]


def _letters(text: str) -> Array:
    """What counts of a text."""
    codes = np.frombuffer(text.casefold().encode("utf-32-le", "surrogatepass"), "<u4")
    kinds = _kinds()[codes]
    found = codes[kinds == LETTER]
    return found if len(found) else codes[kinds == SIGN]


@cache
def _kinds() -> Array:
    """For every code: white space and controls, punctuation and symbols, or all others, which count as letters."""
    found = np.full(0x110000, LETTER, np.uint8)
    for code in (*range(0x20000), *range(0xE0000, 0xE0100)):  # ideographs and private ones lie between and behind
        kind = unicodedata.category(chr(code))
        if kind[0] in "PZS" or kind in ("Cc", "Cf"):
            found[code] = SIGN if kind[0] in "PS" else BLANK
    return found


def _hash(rows: list[int], pieces: list[Array], how: Near) -> tuple[Array, Array]:
    codes = np.concatenate(pieces).astype(np.uint64)
    lengths = np.array([len(piece) for piece in pieces])
    if (wide := codes >= WIDE).any():
        times = 1 + 2 * wide.astype(np.int64)
        lengths = np.add.reduceat(times, np.cumsum(lengths) - lengths)
        codes = np.repeat(codes, times)
    count = len(codes) - how.shingle + 1
    hashes = codes[:count].copy()
    for n in range(1, how.shingle):
        hashes *= ODD
        hashes += codes[n : n + count]
    valid = np.ones(len(codes), bool)
    valid[np.subtract.outer(np.cumsum(lengths), np.arange(1, how.shingle))] = False
    valid = valid[:count]
    return np.repeat(np.array(rows), lengths)[:count][valid], chance.mix(hashes[valid] + chance.bits(how.seed))


def _fill(found: Array) -> None:
    """Give every empty bin the number of the first bin, in its own order, that is not empty."""
    empty = found == EMPTY
    row, column = np.nonzero(empty)
    order = _orders(found.shape[1])
    for n in range(found.shape[1]):
        if not len(row):
            return
        source = order[column, n]
        there = ~empty[row, source]
        found[row[there], column[there]] = found[row[there], source[there]]
        row, column = row[~there], column[~there]


@cache
def _orders(bins: int) -> Array:
    """For each bin an order of all bins."""
    drawn = chance.mix(np.arange(1, bins * bins + 1, dtype=np.uint64) * ODD).reshape(bins, bins)
    return np.argsort(drawn, axis=1, kind="stable")


def _shingles(text: str, how: Near) -> Array:
    return np.unique(np.concatenate([hashes for _, hashes in _hashed([text], how)]))


def _overlap(one: Array, other: Array) -> float:
    shared = len(np.intersect1d(one, other, assume_unique=True))
    return shared / (len(one) + len(other) - shared)


# ---- run files


@dataclass(frozen=True)
class _MatchingWork:
    """What every task knows."""

    folder: Path
    how: Near
    text: Text | None
    against: int
    starts: tuple[int, ...]  # the first document of each run
    keyed: bool
    signed: bool

    @property
    def exact(self) -> int:
        """Lanes of a run file in which equal means the same: the words' key, the whole signature."""
        return self.keyed + self.signed

    @property
    def lanes(self) -> int:
        return self.exact + (self.how.bands()[0] if self.signed else 0)

    def open(self, name: str) -> Array:
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")


def _ranked(total: int, preference: Array | None, against: int, scratch: Path, keys: Array | None) -> Array:
    """The documents in order of preference; written down with each one's rank, and the keys."""
    if total > EMPTY:
        raise DataError("near duplicates", f"{total:,} documents", f"at most {EMPTY:,}", "divide the corpus")
    order = np.arange(total, dtype="<u4")
    if preference is not None:
        order[against:] = against + np.argsort(-preference[against:], kind="stable")
    rank = np.empty(total, "<u4")
    rank[order] = np.arange(total, dtype="<u4")
    np.save(scratch / "order.npy", order)
    np.save(scratch / "rank.npy", rank)
    if keys is not None:
        np.save(scratch / "keys.npy", np.asarray(keys, "<u8"))
    return order


def _runs(files: Sequence[Path], counts: Sequence[int]) -> list[tuple[int, int, list[Path], list[int]]]:
    """Files put together to runs: number, first document, files, their counts."""
    runs, first, start, size = list[tuple[int, int, list[Path], list[int]]](), 0, 0, 0
    for end, count in enumerate(counts, 1):
        size += count
        if size >= RUN or end == len(counts):
            runs.append((len(runs), first, list(files[start:end]), list(counts[start:end])))
            first, start, size = first + size, end, 0
    return runs


def _write_run(work: _MatchingWork, run: int, first: int, files: list[Path], counts: list[int]) -> None:
    """One run's lanes, each sorted by key, and a byte of every number of its signatures."""
    count = sum(counts)
    keys = np.empty((work.lanes, count), "<u8")
    ranks = np.empty((work.lanes, count), "<u4")
    bytes_ = np.empty((count, work.how.permutations if work.signed else 0), np.uint8)
    if work.keyed:
        keys[0] = work.open("keys")[first : first + count]
    at = 0
    for path, size in zip(files, counts, strict=False):
        for rows in _rows(path, size, first + at, work):
            keys[work.keyed :, at : at + len(rows)] = _lanes(rows, work.how)
            bytes_[at : at + len(rows)] = (rows * np.uint32(0x9E3779B1)) >> np.uint32(24)
            at += len(rows)
    rank = work.open("rank")[first : first + count]
    for lane in range(work.lanes):
        order = np.argsort(keys[lane], kind="stable")
        keys[lane], ranks[lane] = keys[lane][order], rank[order]
    for name, array in (("run", keys), ("ranks", ranks), ("bytes", bytes_)):
        np.save(work.folder / f"{name}-{run}.npy", array)
        sync(work.folder / f"{name}-{run}.npy")


def _rows(path: Path, count: int, first: int, work: _MatchingWork) -> Iterator[Array]:
    """The signatures of a file, some thousands at a time, if they are what they should be."""
    wanted, remedy = f"{count:,} signatures of {work.how.permutations} '<u4'", "make the signatures again"
    rows = mapped(path, wanted, remedy)
    if rows.dtype.str != "<u4" or rows.shape != (count, work.how.permutations):
        raise DataError(path, f"{rows.shape} '{rows.dtype.str}'", wanted, remedy)
    if count and work.text and (signatures([work.text(first)], work.how)[0] != rows[0]).any():
        settings = f"shingle {work.how.shingle} and seed {work.how.seed}"
        found = f"another signature than that of document {first:,} by {settings}"
        raise DataError(path, found, "signatures of these texts", remedy)
    for start in range(0, count, 4096):
        yield np.ascontiguousarray(rows[start : start + 4096])


def _lanes(rows: Array, how: Near) -> Array:
    """The hash of the whole signature, and that of each band."""
    columns = np.ascontiguousarray(rows.T).astype(np.uint64)
    bands, width = how.bands()
    found = [_fold(columns[band * width : band * width + width]) for band in range(bands)]
    return np.stack([_fold([*found, *columns[bands * width :]]), *found])


def _fold(columns: Iterable[Array]) -> Array:
    """One hash of several columns."""
    found: Any = np.uint64(1)
    for column in columns:
        found = (found ^ column) * ODD
        found ^= found >> np.uint64(29)
    return chance.mix(found)


# ---- buckets


def _twins(work: _MatchingWork, total: int, map_in_order: Spread) -> Array:
    """For each rank the best one of the same key or signature."""
    twin = np.arange(total, dtype="<u4")
    for lane in range(work.exact):
        np.save(work.folder / "state.npy", (twin == np.arange(total, dtype="<u4")).astype(np.uint8))
        for worse, better in map_in_order(_equal, ((work, lane, *part) for part in _parts(total))):
            twin[worse] = better
        twin = twin[twin]
    return twin


def _parts(total: int) -> list[tuple[int, int]]:
    """Parts of the range of keys: enough for many processes, and none too large."""
    parts = max(min(16, 1 + (total >> 16)), 1 + total // PART)
    return [(part, parts) for part in range(parts)]


def _equal(work: _MatchingWork, lane: int, part: int, parts: int) -> tuple[Array, Array]:
    """Ranks that equal a better one in this lane."""
    group, rank = _buckets(work, lane, part, parts, work.open("state"))
    first = _firsts(group)
    return rank[~first], rank[first][np.cumsum(first) - 1][~first]


def _buckets(work: _MatchingWork, lane: int, part: int, parts: int, state: Array) -> tuple[Array, Array]:
    """Keys that several documents share, and those documents: sorted by key, then rank."""
    key, rank = _entries(work, lane, part, parts, state)
    order = np.argsort(key, kind="stable")
    key, rank = key[order], rank[order]
    same = key[1:] == key[:-1]
    shared = np.append(same, False) | np.insert(same, 0, False) if len(key) else np.zeros(0, bool)
    key, rank = key[shared], rank[shared]
    order = np.lexsort((rank, key))
    return key[order], rank[order]


def _entries(work: _MatchingWork, lane: int, part: int, parts: int, state: Array) -> tuple[Array, Array]:
    low, high = (np.uint64(min((n << 64) // parts, (1 << 64) - 1)) for n in (part, part + 1))
    keys, ranks = [np.empty(0, "<u8")], [np.empty(0, "<u4")]
    for run in range(len(work.starts)):
        key = work.open(f"run-{run}")[lane]
        start = np.searchsorted(key, low)
        stop = len(key) if part + 1 == parts else np.searchsorted(key, high)
        rank = work.open(f"ranks-{run}")[lane, start:stop]
        alive = state[rank] > 0
        keys.append(key[start:stop][alive])
        ranks.append(rank[alive])
    return np.concatenate(keys), np.concatenate(ranks)


def _firsts(group: Array) -> Array:
    """Where a new group begins."""
    first = np.ones(len(group), bool)
    first[1:] = group[1:] != group[:-1]
    return first


# ---- who is similar to whom, and who is dropped

KEPT, FRESH = 1, 2  # 0: dropped, or the twin of another


@dataclass
class _Pairs:
    """Similar pairs of ranks, worse << 32 | better, sorted."""

    pairs: Array
    similarity: Array

    def __init__(self) -> None:
        self.pairs, self.similarity = np.empty(0, "<u8"), np.empty(0, "<f4")

    def add(self, pairs: list[Array], similarity: list[Array]) -> None:
        self.pairs = np.concatenate([self.pairs, *pairs])
        self.similarity = np.concatenate([self.similarity, *similarity])
        order = np.argsort(self.pairs, kind="stable")
        self.pairs, self.similarity = self.pairs[order], self.similarity[order]

    def dropped(self, total: int) -> Array:
        """Taken by rank: dropped if similar to one that is not."""
        dropped = bytearray(total)
        for start in range(0, len(self.pairs), 1 << 16):
            worse, better = _split(self.pairs[start : start + (1 << 16)])
            for w, b in zip(worse.tolist(), better.tolist(), strict=True):
                if not dropped[b]:
                    dropped[w] = 1
        return np.frombuffer(dropped, bool)


def _split(pairs: Array) -> tuple[Array, Array]:
    return (pairs >> np.uint64(32)).astype("<u4"), pairs.astype("<u4")


def _joined(worse: Array, better: Array) -> Array:
    return (worse.astype("<u8") << np.uint64(32)) | better


def _similar(work: _MatchingWork, twin: Array, map_in_order: Spread) -> _Pairs:
    """All similar pairs that matter: among those kept in the end there is none."""
    total = len(twin)
    alone = twin == np.arange(total, dtype="<u4")
    found, apart = _Pairs(), np.empty(0, "<u8")
    dropped, fresh = np.zeros(total, bool), alone  # fresh: not yet compared with all that are kept now
    while fresh.any():
        again = np.zeros(total, bool)
        with Progress("match", work.lanes - work.exact, "bands") as shown:
            for lane in range(work.exact, work.lanes):
                np.save(work.folder / "state.npy", ((alone & ~dropped) * (KEPT + fresh)).astype(np.uint8))
                np.save(work.folder / "apart.npy", apart)
                new = list(map_in_order(_compare, ((work, lane, *part) for part in _parts(total))))
                found.add([pairs for pairs, _, _ in new], [similarity for _, similarity, _ in new])
                apart = np.sort(np.concatenate([apart, *(unlike for _, _, unlike in new)]))
                dropped = found.dropped(total)
                again |= dropped
                for pairs, _, _ in new:
                    again[_split(pairs)[0]] = True
                shown.add(1, "(kept as it goes)")
        fresh = again & alone & ~dropped
    return found


def _compare(work: _MatchingWork, lane: int, part: int, parts: int) -> tuple[Array, Array, Array]:
    """Similar pairs of a band's buckets with their similarity, and pairs whose texts were found not to be similar."""
    state = work.open("state")
    group, rank = _buckets(work, lane, part, parts, state)
    judge = _Judge(work)
    pairs, similarity = [np.empty(0, "<u8")], [np.empty(0, "<f4")]
    for turn in range(PIVOTS):
        group, rank = _worth(group, rank, state)
        if not len(group):
            break
        first = _firsts(group)
        pivot = rank[first][np.cumsum(first) - 1][~first]
        group, rank = group[~first], rank[~first]
        asked = ((state[rank] == FRESH) | (state[pivot] == FRESH)) & (rank >= work.against)
        like, how_like = judge(rank[asked], pivot[asked], exactly=turn < EXACT)
        gone = np.zeros(len(rank), bool)
        gone[np.flatnonzero(asked)[like]] = True
        pairs.append(_joined(rank[gone], pivot[gone]))
        similarity.append(how_like[like])
        group, rank = group[~gone], rank[~gone]
    return np.concatenate(pairs), np.concatenate(similarity), np.array(sorted(judge.unlike), "<u8")


def _worth(group: Array, rank: Array, state: Array) -> tuple[Array, Array]:
    """Buckets of two or more, at least one of them fresh."""
    if not len(group):
        return group, rank
    starts = np.flatnonzero(_firsts(group))
    sizes = np.diff(np.append(starts, len(group)))
    fresh = np.logical_or.reduceat(state[rank] == FRESH, starts)
    worth = np.repeat((sizes > 1) & fresh, sizes)
    return group[worth], rank[worth]


class _Judge:
    """Which pairs of ranks are similar: by their signatures, or by their texts where these settle nothing."""

    def __init__(self, work: _MatchingWork) -> None:
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
        at = np.minimum(np.searchsorted(self.apart, pairs), len(self.apart) - 1)
        return self.apart[at] == pairs

    def _estimate(self, worse: Array, better: Array) -> Array:
        """The share of equal numbers, less those whose bytes agree by chance."""
        equal = (self._bytes(worse) == self._bytes(better)).sum(1, dtype=np.int64) / self.work.how.permutations
        return (equal * 256 - 1) / 255

    def _bytes(self, ranks: Array) -> Array:
        numbers = self.order[ranks]
        run = np.searchsorted(self.starts, numbers, "right") - 1
        found = np.empty((len(ranks), self.work.how.permutations), np.uint8)
        for n in np.unique(run).tolist():
            found[run == n] = self.bytes[n][numbers[run == n] - self.starts[n]]
        return found

    def _exact(self, worse: Array, better: Array) -> list[float]:
        """Pairs come sorted by bucket, so that the better one is the same for many in a row."""
        assert self.work.text
        found, last, held = list[float](), -1, np.empty(0)
        for w, b in zip(self.order[worse].tolist(), self.order[better].tolist(), strict=True):
            if b != last:
                last, held = b, _shingles(self.work.text(b), self.work.how)
            found.append(_overlap(held, _shingles(self.work.text(w), self.work.how)))
        return found


def _found(folder: Path, order: Array, twin: Array, pairs: _Pairs, against: int) -> Duplicates:
    """Each dropped document with the kept one most similar to it, written down."""
    total = len(order)
    target, similarity = np.arange(total, dtype="<u4"), np.ones(total, "<f4")
    worse, better = _split(pairs.pairs)
    to_kept = ~pairs.dropped(total)[better]
    worse, better, how_like = worse[to_kept], better[to_kept], pairs.similarity[to_kept]
    by = np.lexsort((better, -how_like, worse))
    by = by[_firsts(worse[by])]
    target[worse[by]], similarity[worse[by]] = better[by], how_like[by]
    gone = np.flatnonzero(target[twin] != np.arange(total, dtype="<u4"))
    gone = gone[gone >= against]
    numbers, kept, how_like = order[gone], order[target[twin[gone]]], similarity[twin[gone]]
    by = np.argsort(numbers, kind="stable")
    made = {"dropped": numbers[by], "kept": kept[by], "similarity": how_like[by]}
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    return Duplicates(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in made))
