"""Masking: which places of a row are predicted, and what stands there instead; all rows of a batch at once.

    tokens [B, T] --choose--> places [B, P], weights [B, P] --corrupt--> masked tokens [B, T], targets [B, P]

All chance is `chance.unit(key, use, number of the row, place)`: equal for equal numbers in whatever batch.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance
from ordsmed.data.windows import run

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
CHOOSE, KIND, WORD = 1, 2, 3  # uses of chance, so that no two draws share their bits


def slots(share: float, length: int) -> int:
    """Prediction slots a row needs so that the share of a full one fits: shapes stay the same."""
    return max(1, math.ceil(round(share * length, 6)))


def amounts(allowed: Flags, share: float, limit: int) -> Ids:
    """How many places of each row are predicted: the share of what is allowed, rounded half to even, at least 1."""
    able = allowed.sum(1)
    return np.minimum(np.clip(np.rint(able * share), 1, limit), able).astype(np.int64)


def choose(allowed: Flags, amount: Ids, limit: int, key: int, numbers: Ids) -> tuple[Ids, NDArray[np.float32]]:
    """So many of the allowed places of each row, without replacement, in order; unused slots stand at 0 and weigh 0."""
    height = np.where(allowed, chance.unit(key, CHOOSE, numbers[:, None], np.arange(allowed.shape[1])), 2.0)
    places = np.argpartition(height, min(limit, allowed.shape[1] - 1), axis=1)[:, :limit]
    places = np.take_along_axis(places, np.argsort(np.take_along_axis(height, places, 1), axis=1), 1)
    return _settle(places, np.arange(places.shape[1]) < amount[:, None], limit)


def choose_words(
    allowed: Flags, continues: Flags, amount: Ids, limit: int, key: int, numbers: Ids
) -> tuple[Ids, NDArray[np.float32]]:
    """Whole words until the amount is reached; a word that would pass it is left out, as BERT does."""
    rows = len(allowed)
    starts = allowed & ~(continues & np.roll(allowed, 1, axis=1))
    places, used = np.zeros((rows, limit), np.int64), np.zeros((rows, limit), np.bool_)
    for row in range(rows):
        first = np.flatnonzero(starts[row])
        word = np.cumsum(starts[row]) - 1
        sizes = np.bincount(word[allowed[row]], minlength=len(first))
        taken = _take(sizes, np.argsort(chance.unit(key, CHOOSE, int(numbers[row]), first)), int(amount[row]))
        at = np.repeat(first[taken], sizes[taken]) + run(sizes[taken])
        places[row, : len(at)], used[row, : len(at)] = at, True
    return _settle(places, used, limit)


def corrupt(
    tokens: Ids, places: Ids, weights: NDArray[np.float32], key: int, numbers: Ids, *,
    mask: int, keep: float, swap: float, words: Ids,
) -> tuple[Ids, Ids]:  # fmt: skip
    """Put [MASK] at the chosen places, but keep a share as it is and swap a share for any of `words`."""
    targets = np.take_along_axis(tokens, places, 1)
    kind = chance.unit(key, KIND, numbers[:, None], places)
    word = words[(chance.unit(key, WORD, numbers[:, None], places) * len(words)).astype(np.int64)]
    shown = np.where(kind < keep, targets, np.where(kind < keep + swap, word, mask))
    changed = tokens.copy()
    row, slot = np.nonzero(weights)
    changed[row, places[row, slot]] = shown[row, slot]
    return changed, targets


def _take(sizes: Ids, order: Ids, amount: int) -> Ids:
    taken, left = [], amount
    for word in order.tolist():
        if sizes[word] <= left:
            taken.append(word)
            left -= int(sizes[word])
            if not left:
                break
    return np.asarray(taken, np.int64)


def _settle(places: Ids, used: Flags, limit: int) -> tuple[Ids, NDArray[np.float32]]:
    """Chosen places in rising order first, then unused slots."""
    length = np.iinfo(np.int64).max
    ordered = np.sort(np.where(used, places, length), axis=1)
    weights = (ordered < length).astype(np.float32)
    ordered = np.where(weights > 0, ordered, 0)
    if ordered.shape[1] < limit:
        grown = ((0, 0), (0, limit - ordered.shape[1]))
        ordered, weights = np.pad(ordered, grown), np.pad(weights, grown)
    return ordered, weights
