"""Counter-based random numbers: bits are a pure function of a key and counters, independent of any process's history.

The mixing function is the finalizer of SplitMix64 (Steele, Lea and Flood 2014), applied to key and counters in turn.
"""

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.keys import text_number

Bits = NDArray[np.uint64]
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = (1 << 64) - 1


def key(*parts: object) -> int:
    """Return a 64-bit key of seed, phase, name and so on. Equal parts give equal keys on every machine."""
    return text_number(repr(parts))


def bits(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> Bits:
    """Return 64 random bits for each element of the broadcast counters."""
    state = mix(np.asarray(key, np.uint64)) if np.ndim(key) else _mix_number(int(key) & _ALL)
    for counter in counters:
        if np.ndim(counter):
            state = mix(
                np.uint64(state) ^ (np.asarray(counter).astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(GOLDEN))
            )
            continue
        scrambled = (int(counter) * GOLDEN + GOLDEN) & _ALL
        state = _mix_number(state ^ scrambled) if isinstance(state, int) else mix(state ^ np.uint64(scrambled))
    return np.asarray(state, np.uint64)


def unit(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Return random numbers in [0, 1) with 53 bits each."""
    return np.asarray((bits(key, *counters) >> np.uint64(11)) * (1.0 / (1 << 53)), np.float64)


def mix(z: Bits) -> Bits:
    """Return the numbers with scrambled bits, a bijection. Overflow wraps without a warning."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
    return z ^ (z >> np.uint64(31))


def _mix_number(z: int) -> int:
    """Do the same for one Python integer, which is much faster than NumPy for single keys."""
    z = ((z ^ (z >> 30)) * FIRST) & _ALL
    z = ((z ^ (z >> 27)) * SECOND) & _ALL
    return z ^ (z >> 31)
