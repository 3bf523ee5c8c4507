"""All chance: random bits as a pure function of a key and a counter, never of a process's history.

The mixing is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), applied to key and counter in turn.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: object) -> int:
    """A 64-bit key from seed, phase, name...: equal parts give equal keys on every machine."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def bits(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> Bits:
    """64 random bits for every combination that the counters broadcast to."""
    with np.errstate(over="ignore"):
        state = mix(np.asarray(key, np.uint64))
        for counter in counters:
            state = mix(state ^ (np.asarray(counter).astype(np.uint64) * _GOLDEN + _GOLDEN))
        return state


def unit(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Numbers in [0, 1), 53 bits each."""
    return np.asarray((bits(key, *counters) >> np.uint64(11)) * (1.0 / (1 << 53)), np.float64)


def mix(z: Bits) -> Bits:
    """Scramble 64 bits; a bijection."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
