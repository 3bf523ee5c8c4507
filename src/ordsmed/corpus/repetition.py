"""Runs of words as numbers, by which repetition within a text is counted."""

from typing import Any

import numpy as np

from ordsmed.base import chance

Numbers = np.ndarray[Any, np.dtype[Any]]


def keys(words: list[str]) -> Numbers:
    """A number for each word, the same for the same word of this text."""
    index = {word: number for number, word in enumerate(dict.fromkeys(words))}
    ids = np.fromiter(map(index.__getitem__, words), np.int64, len(words))
    keys: Numbers = np.random.default_rng(0).integers(0, 1 << 63, len(index), dtype=np.uint64)
    return keys[ids]


def grams(keys: Numbers, n: int) -> Numbers:
    """A number for each run of n words; that two runs share one by chance is as likely as a bit gone wrong."""
    mixed = np.zeros(max(len(keys) - n + 1, 0), np.uint64)
    for at in range(n if len(mixed) else 0):
        mixed = mixed * np.uint64(chance.GOLDEN) + keys[at : at + len(mixed)]
    return mixed


def sums(lengths: Numbers, n: int) -> Numbers:
    """The characters of each run of n words."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends[n:] - ends[:-n]


def alike(grams: Numbers) -> tuple[Numbers, Numbers]:
    """Positions ordered so that equal numbers stand together, and where in that order each kind begins."""
    order = np.argsort(grams)
    kinds = grams[order]
    return order, np.flatnonzero(np.concatenate([[True], kinds[1:] != kinds[:-1]])[: len(kinds)])
