"""Time, memory, opens of files and pairs of the search for near duplicates, over signatures without texts.

    python tests/measure/near_signatures.py --documents 10000000

Of every 10 documents one has the signature of an earlier one, two are like one in 0.75 to 0.95 of its numbers, and one
is like such a copy, so that chains come about; the others stand alone.
"""

from __future__ import annotations

import argparse
import functools
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.corpus import buckets, near, signatures, similar

FILE = 50_000  # documents of a file of signatures


def write(folder: Path, start: int, count: int) -> Path:
    """One file of signatures; what a document is a copy of stands in the same file."""
    chance = np.random.default_rng((3, start))
    rows = chance.integers(0, signatures.EMPTY, (count, 128), dtype=np.uint32)
    tens = np.arange(0, count - count % 10, 10)
    for place, low, high in ((1, 1.0, 1.0), (2, 0.75, 0.95), (3, 0.75, 0.95)):
        copy(rows, tens + place, chance.permutation(tens) + 5, chance, low, high)
    copy(rows, tens + 4, chance.permutation(tens) + 2, chance, 0.75, 0.95)
    np.save(folder / f"{start:010d}.npy", rows)
    return folder / f"{start:010d}.npy"


def copy(
    rows: np.ndarray, to: np.ndarray, of: np.ndarray, chance: np.random.Generator, low: float, high: float
) -> None:
    shares = chance.uniform(low, high, (len(to), 1))
    rows[to] = np.where(chance.random((len(to), 128)) < shares, rows[of], rows[to])


def counted(function: Any, task: tuple[Any, ...]) -> tuple[Any, Counter[str]]:
    """What a task gives, and what it opened and compared."""
    counts, opened, judged = Counter[str](), buckets.MatchingWork.open, similar.PairComparison.__call__

    def open_(work: buckets.MatchingWork, name: str) -> Any:
        counts["files opened"] += 1
        return opened(work, name)

    def judge(judge: similar.PairComparison, worse: Any, better: Any, **more: Any) -> Any:
        counts["pairs estimated"] += len(worse)
        return judged(judge, worse, better, **more)

    buckets.MatchingWork.open, similar.PairComparison.__call__ = open_, judge
    try:
        return function(*task), counts
    finally:
        buckets.MatchingWork.open, similar.PairComparison.__call__ = opened, judged


def spread(pool: ProcessPoolExecutor, counts: Counter[str], function: Any, tasks: Any) -> Iterator[Any]:
    begun, tasks = time.perf_counter(), list(tasks)
    for found, more in pool.map(functools.partial(counted, function), tasks):
        counts += more
        counts["tasks"] += 1
        yield found
    seconds = time.perf_counter() - begun
    if len(tasks[0]) > 1 and (name := getattr(tasks[0][1], "__name__", "")):
        counts[f"seconds of {name}"] += round(seconds)


def peak(_: int) -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=1_000_000)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--folder", type=Path, default=None, help="where signatures and scratch files go")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name, ProcessPoolExecutor(asked.processes) as pool:
        folder, total, counts = Path(name), asked.documents, Counter[str]()
        sizes = [min(FILE, total - start) for start in range(0, total, FILE)]
        files = list(pool.map(write, [folder] * len(sizes), range(0, total, FILE), sizes))
        begun, used = time.perf_counter(), time.process_time()
        found = near.find(files, sizes, None, None, signatures.Near(), folder, functools.partial(spread, pool, counts))
        seconds, used = time.perf_counter() - begun, time.process_time() - used
        print(f"{total:,} documents: {seconds:,.0f} s on {asked.processes} processes, {used:,.0f} s here alone")
        print(f"dropped: {len(found.numbers):,}; sum {int(found.numbers.astype(np.uint64).sum()):,}")
        print(", ".join(f"{what} {number:,}" for what, number in sorted(counts.items())))
        print(f"opens for 1,000 documents: {1000 * counts['files opened'] / total:.2f}")
        print(f"peak: {peak(0):.2f} GB here, {max(pool.map(peak, range(8))):.2f} GB in a process")


if __name__ == "__main__":
    main()
