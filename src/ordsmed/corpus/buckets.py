"""Buckets of documents whose signatures agree in a band, from run files sorted by key.

A bucket holds the documents that agree in all `rows` bins of a band. The number of rows is as large as possible while a
pair at the threshold is found with probability SURE: for 0.7 and 128 permutations 25 bands of 5 rows, which find 0.99
of the pairs at 0.7 and 0.9999 at 0.8; of the pairs at 0.3, 1 in 17 is compared without being similar. Documents with
equal signatures (or keys) count as one.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ordsmed.base import chance
from ordsmed.base.errors import DataError
from ordsmed.base.files import mapped, sync
from ordsmed.base.say import many
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.signatures import EMPTY, ODD, Array, Near, signatures

Text = Callable[[int], str]

RUN = 1 << 17  # documents of a run file
RUNS = 128  # most run files, because each of very many tasks opens all of them
PART = 1 << 21  # most entries of a band in a task


@dataclass(frozen=True)
class MatchingWork:
    """Data that every task needs."""

    folder: Path
    how: Near
    text: Text | None
    against: int
    starts: tuple[int, ...]  # the first document of each run
    keyed: bool
    signed: bool

    @property
    def exact(self) -> int:
        """Return the number of lanes of a run file in which equal keys mean duplicates: words and whole signatures."""
        return self.keyed + self.signed

    @property
    def lanes(self) -> int:
        return self.exact + (self.how.bands()[0] if self.signed else 0)

    def open(self, name: str) -> Array:
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def create(self, name: str, kind: str, shape: tuple[int, int]) -> Array:
        """Create an array in a file. Its disk space is allocated at once, so that a full disk raises an error here."""
        path = self.folder / f"{name}.npy"
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
            os.posix_fallocate(file.fileno(), 0, file.tell() + np.dtype(kind).itemsize * shape[0] * shape[1])
        return np.load(path, mmap_mode="r+")


def ranked(total: int, preference: Array | None, against: int, scratch: Path, keys: Array | None) -> Array:
    """Return the documents in order of preference. Store them, the rank of each, and the keys."""
    if total > EMPTY:
        raise DataError("near duplicates", f"{many(total, 'document')}", f"at most {EMPTY:,}", "divide the corpus")
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


def runs_of(files: Sequence[Path], counts: Sequence[int]) -> list[tuple[int, int, list[Path], list[int]]]:
    """Group files into runs: number, first document, files and their counts."""
    runs, first, start, size = list[tuple[int, int, list[Path], list[int]]](), 0, 0, 0
    enough = max(RUN, -(-sum(counts) // RUNS))
    for end, count in enumerate(counts, 1):
        size += count
        if size >= enough or end == len(counts):
            runs.append((len(runs), first, list(files[start:end]), list(counts[start:end])))
            first, start, size = first + size, end, 0
    return runs


def write_run(work: MatchingWork, run: int, first: int, files: list[Path], counts: list[int]) -> None:
    """Write a run: its lanes, each sorted by key, and one byte of every number of its signatures."""
    count = sum(counts)
    keys = work.create(f"run-{run}", "<u8", (work.lanes, count))
    ranks = work.create(f"ranks-{run}", "<u4", (work.lanes, count))
    bytes_ = work.create(f"bytes-{run}", "|u1", (count, work.how.permutations if work.signed else 0))
    if work.keyed:
        keys[0] = work.open("keys")[first : first + count]
    at = 0
    for path, size in zip(files, counts, strict=False):
        for rows in _rows(path, size, first + at, work):
            # the hash of the whole signature, then one per band
            columns = np.ascontiguousarray(rows.T).astype(np.uint64)
            bands, width = work.how.bands()
            hashes = [_fold(columns[band * width : band * width + width]) for band in range(bands)]
            keys[work.keyed :, at : at + len(rows)] = np.stack([_fold([*hashes, *columns[bands * width :]]), *hashes])
            bytes_[at : at + len(rows)] = (rows * np.uint32(0x9E3779B1)) >> np.uint32(24)
            at += len(rows)
    rank = work.open("rank")[first : first + count]
    for lane in range(work.lanes):
        order = np.argsort(keys[lane], kind="stable")
        keys[lane], ranks[lane] = keys[lane][order], rank[order]
    for name in ("run", "ranks", "bytes"):
        sync(work.folder / f"{name}-{run}.npy")  # writes through the memory maps, too


def _rows(path: Path, count: int, first: int, work: MatchingWork) -> Iterator[Array]:
    wanted, remedy = f"{count:,} signatures of {work.how.permutations} '<u4'", "compute the signatures again"
    rows = mapped(path, wanted, remedy)
    if rows.dtype.str != "<u4" or rows.shape != (count, work.how.permutations):
        raise DataError(path, f"{rows.shape} '{rows.dtype.str}'", wanted, remedy)
    if count and work.text and (signatures([work.text(first)], work.how)[0] != rows[0]).any():
        settings = f"shingle {work.how.shingle} and seed {work.how.seed}"
        problem = f"not the signature of document {first:,} with {settings}"
        raise DataError(path, problem, "signatures of these texts", remedy)
    yield from (np.ascontiguousarray(rows[start : start + 4096]) for start in range(0, count, 4096))


def _fold(columns: Iterable[Array]) -> Array:
    hashed: Array = np.ones(1, np.uint64)
    for column in columns:
        hashed = (hashed ^ column) * ODD
        hashed ^= hashed >> np.uint64(29)
    return chance.mix(hashed)


def twins(work: MatchingWork, total: int, map_in_order: MapInOrder) -> Array:
    """Return for each rank the best rank with an equal key or signature."""
    twin = np.arange(total, dtype="<u4")
    for lane in range(work.exact):
        np.save(work.folder / "state.npy", (twin == np.arange(total, dtype="<u4")).astype(np.uint8))
        for worse, better in map_in_order(_equal, ((work, lane, *part) for part in parts_of_keys(total))):
            twin[worse] = better
        twin = twin[twin]
    return twin


def parts_of_keys(total: int) -> list[tuple[int, int]]:
    """Divide the range of keys into parts: enough for many processes, and none too large."""
    parts = max(min(16, 1 + (total >> 16)), 1 + total // PART)
    return [(part, parts) for part in range(parts)]


def _equal(work: MatchingWork, lane: int, part: int, parts: int) -> tuple[Array, Array]:
    group, rank = buckets(work, lane, part, parts, work.open("state"))
    first = firsts(group)
    return rank[~first], rank[first][np.cumsum(first) - 1][~first]


def buckets(work: MatchingWork, lane: int, part: int, parts: int, state: Array) -> tuple[Array, Array]:
    """Return the keys that several documents share, and these documents, sorted by key and rank."""
    key, rank = _entries(work, lane, part, parts, state)
    order = np.argsort(key, kind="stable")
    key, rank = key[order], rank[order]
    equal = key[1:] == key[:-1]
    shared = np.append(equal, False) | np.insert(equal, 0, False) if len(key) else np.zeros(0, bool)
    key, rank = key[shared], rank[shared]
    order = np.lexsort((rank, key))
    return key[order], rank[order]


def _entries(work: MatchingWork, lane: int, part: int, parts: int, state: Array) -> tuple[Array, Array]:
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


def firsts(group: Array) -> Array:
    first = np.ones(len(group), bool)
    first[1:] = group[1:] != group[:-1]
    return first
