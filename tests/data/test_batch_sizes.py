"""Batch sizes: every row once, each size for as many steps, and a row's step is found again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordsmed.data.batch_sizes import BatchSizes


@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 12), st.integers(1, 60))
def test_steps_take_one_row_after_another(start: int, by: int, count: int, over: int) -> None:
    sizes = BatchSizes.of(start + count * by, start, by, over)
    row = 0
    for step in range(over + 5):
        first, size = sizes.at(step)
        assert first == row
        assert size == start + by * min(count, step * count // over)
        assert {sizes.step_of(number) for number in (row, row + size - 1)} == {step}
        row += size


def test_each_size_for_as_many_steps() -> None:
    sizes = BatchSizes.of(512, 128, 128, 30)
    assert [sizes.at(step)[1] for step in range(40)] == [128] * 10 + [256] * 10 + [384] * 10 + [512] * 10
    assert [BatchSizes.of(10, 4, 3, 1).at(step) for step in range(3)] == [(0, 4), (4, 10), (14, 10)]
    assert BatchSizes.of(7).at(3) == (21, 7)
