"""Random bits inside kernels; they equal those of base/chance.py."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language import tensor as Value  # the type of pointers and numbers

from ordsmed.base import chance

_GOLDEN, _FIRST, _SECOND = (tl.constexpr(number - (1 << 64)) for number in (chance.GOLDEN, chance.FIRST, chance.SECOND))


@triton.jit
def hashed(key: Value, number: Value) -> Value:
    """Return 64 bits hashed from a mixed key and numbers; the masks remove the sign bits of arithmetic shifts."""
    bits = key ^ (number * _GOLDEN + _GOLDEN)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)
