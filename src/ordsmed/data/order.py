"""The order of rows: a permutation of 0..n-1 computed from a key, number by number, never a shuffled list.

A Feistel network over the smallest power of two that holds n; what falls outside n is sent round again.
"""

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance

Numbers = NDArray[np.int64]
ROUNDS = 6


def permute(numbers: Numbers, size: int, key: int) -> Numbers:
    """Where the permutation of 0..size-1 that belongs to this key sends each number."""
    bits = max((size - 1).bit_length(), 2)
    image = _scramble(numbers.astype(np.uint64), bits, key)
    outside = image >= size
    while outside.any():
        image[outside] = _scramble(image[outside], bits, key)
        outside = image >= size
    return image.astype(np.int64)


def draw(numbers: Numbers, size: int, *parts: object) -> Numbers:
    """Running numbers -> rows: each epoch of `size` numbers is a permutation of its own."""
    epochs = numbers // size
    rows = np.empty_like(numbers)
    for epoch in np.unique(epochs):
        inside = epochs == epoch
        rows[inside] = permute(numbers[inside] % size, size, chance.key("order", *parts, int(epoch)))
    return rows


def _scramble(numbers: NDArray[np.uint64], bits: int, key: int) -> NDArray[np.uint64]:
    low = np.uint64(bits // 2)
    high = np.uint64(bits) - low
    low_mask, high_mask = (np.uint64(1) << low) - np.uint64(1), (np.uint64(1) << high) - np.uint64(1)
    left, right = numbers >> low, numbers & low_mask
    for step in range(ROUNDS):
        if step % 2:
            right = right ^ (chance.bits(key, step, left) & low_mask)
        else:
            left = left ^ (chance.bits(key, step, right) & high_mask)
    return (left << low) | right
