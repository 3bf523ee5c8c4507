"""Chance: uniform, equal for equal keys on every machine, different for every other key."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ordsmed.base import chance


def test_golden() -> None:
    """These numbers may never change: order, masks and dropout of every run hang on them."""
    # SplitMix64 with state 0 gives e220a8397b1dcdaf first: mix(golden ratio)
    assert int(chance.mix(np.asarray([0x9E3779B97F4A7C15], np.uint64))[0]) == 0xE220A8397B1DCDAF
    assert chance.key("order", 7, 0) == 0x48C31E8B5FB2772F
    assert int(chance.bits(3, 5, 7)) == 0x9E6F10320EAE5F14


def test_equal_in_another_process() -> None:
    code = "from ordsmed.base import chance; k = chance.key('a', 1, 2.5, None); print(k, int(chance.bits(k, 3, 4)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    key = chance.key("a", 1, 2.5, None)
    assert list(map(int, found)) == [key, int(chance.bits(key, 3, 4))]


def test_broadcast_is_each_by_itself() -> None:
    rows, places = np.asarray([3, 1 << 40])[:, None], np.arange(5)
    together = chance.bits(9, 2, rows, places)
    assert together.shape == (2, 5)
    for i, row in enumerate((3, 1 << 40)):
        for j in range(5):
            assert together[i, j] == chance.bits(9, 2, row, j)


def test_no_two_alike() -> None:
    found = [chance.bits(chance.key("x", seed), np.arange(100)[:, None], np.arange(100)) for seed in range(20)]
    found += [chance.bits(chance.key("y", seed), 1, np.arange(100)[:, None], np.arange(100)) for seed in range(20)]
    bits = np.concatenate([f.ravel() for f in found])
    assert len(np.unique(bits)) == len(bits)
    keys = {chance.key(*parts) for parts in ((), (1,), (1, 1), ("1",), (11,), ("a", "b"), ("ab",), ("a", "b", ""))}
    assert len(keys) == 8


@pytest.mark.parametrize("seed", range(3))
def test_uniform(seed: int) -> None:
    drawn = chance.unit(chance.key(seed), np.arange(500)[:, None], np.arange(400))
    assert 0 <= drawn.min() < drawn.max() < 1
    observed = np.histogram(drawn, 100, (0, 1))[0]
    assert ((observed - 2000) ** 2 / 2000).sum() < 160  # chi-square of 99 degrees: above 160 once in 10,000
    for axis in (0, 1):  # means along each counter, and neighbours do not go together
        assert np.abs(drawn.mean(axis) - 0.5).max() < 0.08
        a, b = np.delete(drawn, -1, axis).ravel(), np.delete(drawn, 0, axis).ravel()
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.01


def test_every_bit_is_fair() -> None:
    drawn = chance.bits(5, np.arange(20_000))
    shares = [float(((drawn >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(64)]
    assert 0.48 < min(shares) <= max(shares) < 0.52
