"""Near duplicates by MinHash and LSH, out of core: which documents are so like a better one that they are dropped.

    texts -> signatures (.npy, a row a document: signatures.py) -> run files: for each band of a row its (key, rank),
    sorted by key -> buckets of one key, band after band (buckets.py) -> pairs -> estimate, or exact where that is too
    close to call -> in order of preference: dropped if and only if similar to a kept one (similar.py) -> Duplicates

Memory: in the calling process 32 bytes a document (a preference given in memory counts in) and 40 a similar pair while
they are merged; in each task 60 bytes for each of at most 2 million entries of a band, or 40 for each of the
documents of a run (RUN, the RUNSth part of all, or one file, whichever has more). On disk, in `folder` while it works:
12 bytes a band and one a permutation for each document, 450 by default. Opens of files grow as the documents, as each
task opens RUNS runs at most; a pair is walked once when it is found.
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

Result = tuple[Array, ...] | None  # of a task


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


def find(
    files: Sequence[Path],
    counts: Sequence[int],
    preference: Array | None,
    text: Text | None,
    how: Near,
    folder: Path,
    map_in_order: MapInOrder = starmap,
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
        stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files if path.exists()]
        inputs = [how, list(counts), against, _sum(keys), _sum(preference), stamps, text is None]
        scratch = _scratch(folder, inputs)
        map_in_order = _remembering(map_in_order, scratch)
        order = ranked(sum(counts), preference if how.keep == "longest" else None, against, scratch, keys)
        runs = runs_of(files, counts)
        work = MatchingWork(scratch, how, text, against, tuple(run[1] for run in runs), keys is not None, bool(files))
        for _ in map_in_order(write_run, ((work, *run) for run in runs)):
            pass
        twin = twins(work, len(order), map_in_order)
        pairs = similar_pairs(work, twin, map_in_order) if files else SimilarPairs(len(order))
        duplicates = _found(folder, order, twin, pairs, against)
        shutil.rmtree(scratch)
    return duplicates


def _found(folder: Path, order: Array, twin: Array, pairs: SimilarPairs, against: int) -> Duplicates:
    """Each dropped document with the kept one most similar to it, written down."""
    total = len(order)
    target, similarity = np.arange(total, dtype="<u4"), np.ones(total, "<f4")
    worse, better = split(pairs.pairs)
    to_kept = ~pairs.dropped[better]
    worse, better, how_like = worse[to_kept], better[to_kept], pairs.similarity[to_kept]
    by = np.lexsort((better, -how_like, worse))
    by = by[firsts(worse[by])]
    target[worse[by]], similarity[worse[by]] = better[by], how_like[by]
    gone = np.flatnonzero(target[twin] != np.arange(total, dtype="<u4"))
    gone = gone[gone >= against]
    numbers, kept, how_like = order[gone], order[target[twin[gone]]], similarity[twin[gone]]
    by = np.argsort(numbers, kind="stable")
    table = {"dropped": numbers[by], "kept": kept[by], "similarity": how_like[by]}
    for name, array in table.items():
        np.save(folder / f"{name}.npy", array)
    return Duplicates(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in table))


def groups(duplicates: Duplicates, limit: int, members: int = 5) -> list[Group]:
    """The documents for which most were dropped, at most `limit` of them."""
    kept, sizes = np.unique(duplicates.kept, return_counts=True)
    biggest = np.lexsort((kept, -sizes))[:limit]
    return [_group(duplicates, int(kept[n]), int(sizes[n]), members) for n in biggest]


def _group(duplicates: Duplicates, kept: int, size: int, members: int) -> Group:
    at = np.flatnonzero(duplicates.kept == kept)
    at = at[np.argsort(duplicates.similarity[at], kind="stable")[:members]]
    return Group(kept, size + 1, [(int(duplicates.numbers[n]), float(duplicates.similarity[n])) for n in at])


# ---- going on where a search was killed: it is gone through again, and what tasks gave is taken from their files


def _scratch(folder: Path, inputs: list[Any]) -> Path:
    """The folder of this search; what another one left goes."""
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
    """A spread whose tasks leave what they gave, so that the same task, counted from the start, is not done again."""
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
    """What the task gives, or gave."""
    cut_off = (FileNotFoundError, ValueError, EOFError, zipfile.BadZipFile)  # then it is done again
    with contextlib.suppress(*cut_off), path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        return tuple(kept[name] for name in kept.files) or None
    result = function(*task)
    with writing(path) as stream:
        np.savez(stream, *(result or ()))
    return result
