"""Hash runs of words, to count repetition within a text."""

from typing import Any

import numpy as np

from ordsmed.base import chance

Numbers = np.ndarray[Any, np.dtype[Any]]


def keys(words: list[str]) -> Numbers:
    """Return a number for each word; equal words get equal numbers."""
    index = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.fromiter(map(index.__getitem__, words), np.int64, len(words))
    keys: Numbers = np.random.default_rng(0).integers(0, 1 << 63, len(index), dtype=np.uint64)
    return keys[ids]


def grams(keys: Numbers, n: int) -> Numbers:
    """Return a hash of each run of n words. Collisions are about as rare as bit errors."""
    mixed = np.zeros(max(len(keys) - n + 1, 0), np.uint64)
    for at in range(n if len(mixed) else 0):
        mixed = mixed * np.uint64(chance.GOLDEN) + keys[at : at + len(mixed)]
    return mixed


def sums(lengths: Numbers, n: int) -> Numbers:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends[n:] - ends[:-n]


def group_equal(grams: Numbers) -> tuple[Numbers, Numbers]:
    """Return indices sorted so that equal numbers are adjacent, and where each group of equal numbers begins."""
    order = np.argsort(grams)
    kinds = grams[order]
    return order, np.flatnonzero(np.concatenate([[True], kinds[1:] != kinds[:-1]])[: len(kinds)])
