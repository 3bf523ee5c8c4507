"""Random bits inside kernels: those of base/chance.py, number by number."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor as Value  # pointers and numbers alike

from ordsmed.base import chance

_GOLDEN, _FIRST, _SECOND = (tl.constexpr(number - (1 << 64)) for number in (chance.GOLDEN, chance.FIRST, chance.SECOND))


@triton.jit
def hashed(key: Value, number: Value) -> Value:
    """64 bits hashed from a key, mixed before, and numbers; shifts are of signed numbers, so what they pull in goes."""
    bits = key ^ (number * _GOLDEN + _GOLDEN)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)
