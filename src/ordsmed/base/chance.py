"""All chance: random bits as a pure function of a key and a counter, never of a process's history.

The mixing is the finaliser of SplitMix64 (Steele, Lea and Flood 2014), applied to key and counter in turn.
"""

import numpy as np
from numpy.typing import NDArray

from ordsmed.base.keys import text_number

Bits = NDArray[np.uint64]
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = (1 << 64) - 1


def key(*parts: object) -> int:
    """A 64-bit key from seed, phase, name...: equal parts give equal keys on every machine."""
    return text_number(repr(parts))


def bits(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> Bits:
    """64 random bits for every combination that the counters broadcast to."""
    state = mix(np.asarray(key, np.uint64)) if np.ndim(key) else _mix_number(int(key) & _ALL)
    for counter in counters:
        if np.ndim(counter):
            state = mix(
                np.uint64(state) ^ (np.asarray(counter).astype(np.uint64) * np.uint64(GOLDEN) + np.uint64(GOLDEN))
            )
            continue
        turned = (int(counter) * GOLDEN + GOLDEN) & _ALL
        state = _mix_number(state ^ turned) if isinstance(state, int) else mix(state ^ np.uint64(turned))
    return np.asarray(state, np.uint64)


def unit(key: int | Bits, *counters: Bits | NDArray[np.int64] | int) -> NDArray[np.float64]:
    """Numbers in [0, 1), 53 bits each."""
    return np.asarray((bits(key, *counters) >> np.uint64(11)) * (1.0 / (1 << 53)), np.float64)


def mix(z: Bits) -> Bits:
    """Scramble the 64 bits of every number of an array, which wraps in silence; a bijection."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(SECOND)
    return z ^ (z >> np.uint64(31))


def _mix_number(z: int) -> int:
    """The same for one number, without numpy: a row's key costs as much as its bits otherwise."""
    z = ((z ^ (z >> 30)) * FIRST) & _ALL
    z = ((z ^ (z >> 27)) * SECOND) & _ALL
    return z ^ (z >> 31)
