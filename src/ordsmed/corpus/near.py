"""Find near duplicates with MinHash and LSH, out of core: the documents that are too similar to a better one.

    texts -> signatures (.npy, a row per document: signatures.py) -> run files: (key, rank) for each band of a row,
    sorted by key -> buckets of equal keys, band after band (buckets.py) -> pairs -> estimate, or exact if uncertain
    -> in order of preference: dropped if and only if similar to a kept document (similar.py) -> Duplicates

Memory: the calling process takes 32 bytes per document (including a preference) and 40 per similar pair. Each task
takes 60 bytes for each of at most 2 million entries of a band, or 40 for each document of a run (RUN documents, the
RUNSth part of all, or one file, whichever is largest). Disk, in `folder` during the search: 12 bytes per band and one
per permutation for each document, 450 by default. Each task opens at most RUNS runs. A pair is compared once.
"""

import contextlib
import itertools
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base.files import survive_disk, write_text, writing
from ordsmed.base.keys import bytes_key
from ordsmed.base.workers import MapInOrder
from ordsmed.corpus.buckets import PART, RUN, RUNS, MatchingWork, Text, firsts, ranked, runs_of, twins, write_run
from ordsmed.corpus.signatures import VERSION, Array, Near
from ordsmed.corpus.similar import PIVOTS, SimilarPairs, similar_pairs, split

Result = tuple[Array, ...] | None  # result of a task


@dataclass(frozen=True)
class Duplicates:
    """The dropped documents, sorted by number. The arrays are memory-mapped files of the folder."""

    numbers: Array
    "numbers of the documents to drop"
    kept: Array
    "for each, the kept document it is similar to"
    similarity: Array
    "similarity of the two; 1.0 for equal keys or signatures"


@dataclass(frozen=True)
class Group:
    """A kept document and the documents dropped because of it."""

    kept: int
    size: int
    members: list[tuple[int, float]]
    "number and similarity of some dropped documents, the least similar first"


def find(
    files: Sequence[Path],
    counts: Sequence[int],
    preference: Array | None,
    text: Text | None,
    settings: Near,
    folder: Path,
    map_in_order: MapInOrder = starmap,
    *,
    keys: Array | None = None,
    against: int = 0,
) -> Duplicates:
    """Return which documents to drop. Documents are numbered through the files.

    Args:
        files: signatures, each a .npy of [count, permutations] '<u4'; none: only equal `keys` are duplicates.
        preference: int64 for each document, such as its length: the highest is kept, among equals the first. Without
            it, or if `how.keep` says so, the first is kept.
        text: returns the text of a number. It is read to check the files and if an estimate is uncertain. Without it,
            estimates decide.
        map_in_order: an ordered parallel map over tuples of arguments; it pickles them, including `text`.
        keys: 64-bit hashes of the documents' words.
        against: this many documents at the front are preferred to all others and never dropped.
    """
    with survive_disk(folder):
        stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.exists()]
        inputs = [settings, list(counts), against, _sum(keys), _sum(preference), stamps, text is None]
        scratch = _scratch(folder, inputs)
        map_in_order = _remembering(map_in_order, scratch)
        order = ranked(sum(counts), preference if settings.keep == "longest" else None, against, scratch, keys)
        runs = runs_of(files, counts)
        work = MatchingWork(
            scratch, settings, text, against, tuple(run[1] for run in runs), keys is not None, bool(files)
        )
        for _ in map_in_order(write_run, ((work, *run) for run in runs)):
            pass
        twin = twins(work, len(order), map_in_order)
        pairs = similar_pairs(work, twin, map_in_order) if files else SimilarPairs(len(order))
        duplicates = _found(folder, order, twin, pairs, against)
        shutil.rmtree(scratch)
    return duplicates


def _found(folder: Path, order: Array, twin: Array, pairs: SimilarPairs, against: int) -> Duplicates:
    total = len(order)
    target, similarity = np.arange(total, dtype="<u4"), np.ones(total, "<f4")
    worse, better = split(pairs.pairs)
    to_kept = ~pairs.dropped[better]
    worse, better, how_like = worse[to_kept], better[to_kept], pairs.similarity[to_kept]
    by = np.lexsort((better, -how_like, worse))
    by = by[firsts(worse[by])]
    target[worse[by]], similarity[worse[by]] = better[by], how_like[by]
    dropped = np.flatnonzero(target[twin] != np.arange(total, dtype="<u4"))
    dropped = dropped[dropped >= against]
    numbers, kept, how_like = order[dropped], order[target[twin[dropped]]], similarity[twin[dropped]]
    by = np.argsort(numbers, kind="stable")
    table = {"dropped": numbers[by], "kept": kept[by], "similarity": how_like[by]}
    for name, array in table.items():
        np.save(folder / f"{name}.npy", array)
    return Duplicates(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in table))


def groups(duplicates: Duplicates, limit: int, members: int = 5) -> list[Group]:
    kept, sizes = np.unique(duplicates.kept, return_counts=True)
    biggest = np.lexsort((kept, -sizes))[:limit]
    return [_group(duplicates, int(kept[n]), int(sizes[n]), members) for n in biggest]


def _group(duplicates: Duplicates, kept: int, size: int, members: int) -> Group:
    at = np.flatnonzero(duplicates.kept == kept)
    at = at[np.argsort(duplicates.similarity[at], kind="stable")[:members]]
    return Group(kept, size + 1, [(int(duplicates.numbers[n]), float(duplicates.similarity[n])) for n in at])


# ---- resuming a killed search: it runs again, but finished tasks read their results from files


def _scratch(folder: Path, inputs: list[Any]) -> Path:
    """Return the folder of this search. Files of a different search are deleted."""
    scratch, key = folder / "near", bytes_key(repr([VERSION, RUN, RUNS, PART, PIVOTS, *inputs]).encode())
    mark = scratch / "search"
    if not mark.exists() or mark.read_text(encoding="utf-8") != key:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        write_text(mark, key)
    return scratch


def _sum(numbers: Array | None) -> int | None:
    return None if numbers is None else zlib.crc32(np.ascontiguousarray(numbers).data)


def _remembering(map_in_order: MapInOrder, scratch: Path) -> MapInOrder:
    """Return a map whose tasks store their results, so that a resumed search does not repeat finished tasks."""
    calls = itertools.count()

    def again(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        call = next(calls)
        return map_in_order(
            _remembered, ((scratch / f"{call}-{n}.npz", function, *task) for n, task in enumerate(tasks))
        )

    return again


def _remembered(
    path: Path, function: Callable[..., tuple[Array, ...] | None], *task: object
) -> tuple[Array, ...] | None:
    cut_off = (FileNotFoundError, ValueError, EOFError, zipfile.BadZipFile)  # missing or damaged: run the task again
    with contextlib.suppress(*cut_off), path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return tuple(arrays[name] for name in arrays.files) or None
    result = function(*task)
    with writing(path) as stream:
        np.savez(stream, *(result or ()))
    return result
