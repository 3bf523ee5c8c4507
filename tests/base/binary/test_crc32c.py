"""CRC-32C: the published values, every way that a length is cut, many runs at once, and TensorFlow's mask."""

from __future__ import annotations

import numpy as np
import pytest

from ordsmed.base.binary import crc32c as checksums
from ordsmed.base.binary.crc32c import BLOCK, FOLD, ROW, crc32c, crc32c_many, masked


@pytest.fixture(params=["numpy", "google"], autouse=True)
def _by_both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With google-crc32c and without."""
    if request.param == "numpy":
        monkeypatch.setattr(checksums, "COMPILED", None)
    elif not checksums.COMPILED:
        pytest.skip("`google_crc32c` is not installed")


def plain(data: bytes) -> int:
    """Bit by bit, as its definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_published_values() -> None:
    """Of RFC 3720, and the usual check."""
    known = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E, b"123456789": 0xE3069283}
    assert {data: crc32c(data) for data in known} == known
    assert int(masked(0xE3069283)) == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 127, 128, 129, 131, 132, 133, 255, 256, 257, 1000])
def test_short_runs(length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, length + 3, dtype=np.uint8)[3:]
    assert crc32c(data) == crc32c(data.tobytes()) == plain(data.tobytes())


def test_long_runs_fold_to_the_same() -> None:
    """At the borders of a fold, and of a block: the sum of two halves, told by a table, is that of the whole."""
    longest = 8 * (FOLD[-1] + BLOCK + FOLD[0]) + 5
    data = np.random.default_rng(0).integers(0, 256, longest, dtype=np.uint8)
    for length in (8 * FOLD[-1], 8 * FOLD[-1] + 1, 8 * FOLD[-1] + 8, 8 * (FOLD[-1] + FOLD[0]) + 7):
        [rows] = crc32c_many(data, np.zeros(1, np.int64), np.array([length]))  # looked up, not folded
        assert crc32c(data[:length]) == rows
    for length in (8 * (FOLD[-1] + BLOCK), longest):
        [rows] = crc32c_many(data, np.zeros(1, np.int64), np.array([length]))
        assert crc32c(data[:length]) == rows


def test_the_rows_are_right_where_the_fold_begins() -> None:
    data = np.random.default_rng(1).integers(0, 256, 8 * FOLD[-1] + 9, dtype=np.uint8)
    assert crc32c(data) == plain(data.tobytes())


def test_many_at_once() -> None:
    data = np.random.default_rng(2).integers(0, 256, 5000, dtype=np.uint8)
    starts, lengths = np.array([0, 7, 100, 3000, 9, 11, 4999]), np.array([5, 3, 900, ROW, ROW - 4, 0, 1])
    expected = [plain(data[at : at + length].tobytes()) for at, length in zip(starts, lengths, strict=True)]
    assert crc32c_many(data, starts, lengths).tolist() == expected
