"""Time, memory and faults of near-duplicate removal over invented short documents with planted duplicates.

    python tests/measure/near.py --documents 1000000

Of every 20 documents one is an equal copy of another one, two are copies with 5 % of the words replaced, one with 10 %,
one with half of them, and 15 stand alone.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from ordsmed.corpus import near, signatures

CHUNK = 5000
SHARES = {0: 0.0, 1: 0.05, 2: 0.05, 3: 0.1, 4: 0.5}  # by number % 20: the share of words replaced


def text(number: int) -> str:
    """The document of a number."""
    return " ".join(vocabulary()[words(number)])


def words(number: int) -> np.ndarray:
    chance = np.random.default_rng((7, number))
    if (other := source(number)) is None:
        return drawn(chance, int(chance.integers(30, 80)))
    found = words(other)
    at = chance.permutation(len(found))[: round(SHARES[number % 20] * len(found))]
    found[at] = drawn(chance, len(at))
    return found


def source(number: int) -> int | None:
    """Of which document this one is a copy: an earlier one that stands alone."""
    if number < 20 or number % 20 not in SHARES:
        return None
    return int(np.random.default_rng((8, number)).integers(number // 20)) * 20 + 5 + number % 15


def drawn(chance: np.random.Generator, count: int) -> np.ndarray:
    """Words by Zipf's law."""
    return (np.exp(chance.random(count) * np.log(20_000)) - 1).astype(np.int64)


@functools.cache
def vocabulary() -> np.ndarray:
    chance = np.random.default_rng(9)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    return np.array(["".join(letters[chance.integers(0, 22, chance.integers(2, 11))]) for _ in range(20_000)], object)


def sign(folder: Path, start: int, stop: int, how: signatures.Near) -> tuple[Path, np.ndarray, float]:
    """One file of signatures; the lengths, and the seconds that signing took."""
    texts = [text(n) for n in range(start, stop)]
    begun = time.perf_counter()
    path = folder / f"{start:09d}.npy"
    np.save(path, signatures.signatures(texts, how))
    return path, np.array([len(t) for t in texts]), time.perf_counter() - begun


def check(pairs: list[tuple[int, int]], how: signatures.Near) -> list[float]:
    return [signatures.jaccard(text(one), text(other), how) for one, other in pairs]


def spread_over(pool: ProcessPoolExecutor, function, arguments) -> Iterator:
    return pool.map(function, *zip(*arguments, strict=True))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=100_000)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--folder", type=Path, default=None, help="where the scratch files go")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder, ProcessPoolExecutor(asked.processes) as pool:
        measure(Path(folder), asked.documents, pool, asked.processes)


def measure(folder: Path, total: int, pool: ProcessPoolExecutor, processes: int) -> None:
    how = signatures.Near()
    spread = functools.partial(spread_over, pool)
    chunks = [(folder, start, min(start + CHUNK, total), how) for start in range(0, total, CHUNK)]
    files, lengths, seconds = zip(*spread(sign, chunks), strict=True)
    characters = sum(int(length.sum()) for length in lengths)
    print(
        f"signatures: {characters / 1e6:,.0f} M characters, {characters / 1e6 / sum(seconds):.1f} M a second and core"
    )
    begun = time.perf_counter()
    counts, preference = [len(length) for length in lengths], np.concatenate(lengths)
    found = near.find(files, counts, preference, text, how, folder, spread)
    print(f"find: {time.perf_counter() - begun:.1f} s on {processes} processes, {len(found.numbers):,} dropped")
    here, there = peak(0), max(pool.map(peak, range(processes * 4)))
    print(f"peak: {here:.2f} GB here, {there:.2f} GB in a process; {here + processes * there:.2f} GB at most together")
    judge(found, total, how, spread)


def peak(_: int) -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def judge(found: near.Duplicates, total: int, how: signatures.Near, spread) -> None:
    """Planted pairs of which both are kept, by their true similarity; dropped documents that are like no kept one."""
    dropped = set(found.numbers.tolist())
    planted = [(n, other) for n in range(total) if (other := source(n)) is not None]
    truth = jaccards(planted, how, spread)
    for low, high in itertools.pairwise((0.0, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.9, 1.01)):
        pairs = [pair for pair, similarity in zip(planted, truth, strict=True) if low <= similarity < high]
        lost = sum(n in dropped or other in dropped for n, other in pairs)
        print(f"planted pairs of similarity {low:.2f} to {min(high, 1):.2f}: {lost:,} of {len(pairs):,} found")
    pairs = list(zip(found.numbers.tolist(), found.kept.tolist(), strict=True))
    wrong = [s for s in jaccards(pairs, how, spread) if s < how.threshold]
    print(f"wrongly dropped: {len(wrong):,}, the least similar {min(wrong, default=1):.3f} to the kept one")
    print(f"kept ones that are dropped: {len(set(found.kept.tolist()) & dropped)}")


def jaccards(pairs: list[tuple[int, int]], how: signatures.Near, spread) -> list[float]:
    blocks = [(pairs[start : start + 2000], how) for start in range(0, len(pairs), 2000)]
    return [similarity for block in spread(check, blocks) for similarity in block]


if __name__ == "__main__":
    main()
