"""The order of rows: a permutation of 0..n-1 computed from a key, number by number, without a shuffled list.

It is a Feistel network over the smallest power of two that is at least n; results outside 0..n-1 are permuted again.
"""

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance

Numbers = NDArray[np.int64]
ROUNDS = 6


def permute(numbers: Numbers, size: int | Numbers, key: int | chance.Bits) -> Numbers:
    """Return the image of each number under the key's permutation of 0..size-1; size and key may differ per number."""
    bits = np.maximum(np.frexp(np.asarray(size, np.float64) - 1)[1], 2)  # bits of size - 1
    image = _scramble(numbers.astype(np.uint64), bits, key)
    while (outside := image >= size).any():
        several = (bits[outside], key[outside]) if isinstance(key, np.ndarray) else (bits, key)
        image[outside] = _scramble(image[outside], *several)
    return image.astype(np.int64)


def draw(numbers: Numbers, size: int, *parts: object) -> Numbers:
    """Map running numbers to rows; each epoch of `size` numbers is a different permutation."""
    epochs = numbers // size
    rows = np.empty_like(numbers)
    for epoch in np.unique(epochs):
        inside = epochs == epoch
        rows[inside] = permute(numbers[inside] % size, size, chance.key("order", *parts, int(epoch)))
    return rows


def draw_from(sources: Numbers, numbers: Numbers, sizes: Numbers, *parts: object) -> Numbers:
    """Map running numbers to rows like `draw`, for numbers within several sources of different sizes."""
    size, count = sizes[sources], len(sizes)
    different, which = np.unique(numbers // size * count + sources, return_inverse=True)
    keys = [chance.key("order", *parts, number % count, number // count) for number in different.tolist()]
    return permute(numbers % size, size, np.asarray(keys, np.uint64)[which])


def _scramble(numbers: NDArray[np.uint64], bits: NDArray[np.integer], key: int | chance.Bits) -> NDArray[np.uint64]:
    low = (bits // 2).astype(np.uint64)
    high = bits.astype(np.uint64) - low
    low_mask, high_mask = (np.uint64(1) << low) - np.uint64(1), (np.uint64(1) << high) - np.uint64(1)
    left, right = numbers >> low, numbers & low_mask
    for step in range(ROUNDS):
        if step % 2:
            right = right ^ (chance.bits(key, step, left) & low_mask)
        else:
            left = left ^ (chance.bits(key, step, right) & high_mask)
    return (left << low) | right
