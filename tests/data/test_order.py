"""The order: a permutation of its own each epoch, number by number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordsmed.base import chance
from ordsmed.data.order import draw, draw_from, permute


@pytest.mark.long
def test_a_permutation_of_every_size() -> None:
    for size in range(1, 5001, 7):
        assert np.array_equal(np.sort(permute(np.arange(size), size, size * 3)), np.arange(size)), size
    for size in (*range(1, 300), 1023, 1024, 1025, 4095, 4096, 4097, 5000):
        assert np.array_equal(np.sort(permute(np.arange(size), size, 5)), np.arange(size)), size


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
def test_a_permutation_for_any_key(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


@given(st.integers(1, 2**40), st.integers(0, 2**40), st.integers(0, 9))
def test_large_sizes_stay_inside_and_do_not_meet(size: int, first: int, seed: int) -> None:
    numbers = np.unique((first + np.arange(200)) % size)
    found = permute(numbers, size, chance.key(seed))
    assert found.dtype == np.int64
    assert 0 <= found.min() <= found.max() < size
    assert len(np.unique(found)) == len(numbers)


def test_every_epoch_is_another_permutation() -> None:
    size, epochs = 211, 20
    rows = draw(np.arange(size * epochs), size, 7, 0).reshape(epochs, size)
    assert (np.sort(rows, axis=1) == np.arange(size)).all()
    for a in range(epochs):
        for b in range(a):
            assert (rows[a] == rows[b]).mean() < 0.1
    other_seed, other_phase = draw(np.arange(size), size, 8, 0), draw(np.arange(size), size, 7, 1)
    assert max((rows[0] == other_seed).mean(), (rows[0] == other_phase).mean()) < 0.1


def test_a_number_alone_is_the_same_number_among_others() -> None:
    numbers = np.random.default_rng(0).integers(0, 10_000, 300)
    together = draw(numbers, 97, "x")
    assert together.tolist() == [int(draw(np.asarray([n]), 97, "x")[0]) for n in numbers]


@pytest.mark.long
@pytest.mark.parametrize("size", [12, 64, 100])
def test_every_place_is_reached_about_as_often(size: int) -> None:
    trials = 3000
    numbers = np.arange(size * trials)
    rows = draw(numbers, size, "uniform").reshape(trials, size)
    expected = trials / size
    for place in (0, 1, size // 2, size - 1):
        observed = np.bincount(rows[:, place], minlength=size)
        square = ((observed - expected) ** 2 / expected).sum()
        assert square < size - 1 + 5 * np.sqrt(2 * (size - 1)) + 5
    neighbours = np.bincount((rows[:, 1] - rows[:, 0]) % size, minlength=size)[1:]
    assert neighbours.min() > trials / (size - 1) * 0.5
    assert neighbours.max() < trials / (size - 1) * 1.6


def test_golden() -> None:
    """The order of a run may never change."""
    assert draw(np.arange(12), 10, 0, 0, 0).tolist() == [4, 8, 6, 9, 1, 7, 2, 0, 5, 3, 5, 1]


@pytest.mark.parametrize("size", [5, 17, 1025, 4097])
def test_one_more_than_a_power_of_two_stays_nowhere(size: int) -> None:
    """The last row would keep its place under every key, had the network a bit too few."""
    last = [int(permute(np.asarray([size - 1]), size, key)[0]) for key in range(40)]
    assert len(set(last)) > 3


def test_golden_sizes() -> None:
    assert permute(np.arange(8), 8, 1).tolist() == [0, 7, 5, 3, 4, 2, 1, 6]
    assert permute(np.arange(9), 9, 1).tolist() == [2, 4, 8, 5, 3, 7, 1, 6, 0]
    assert draw(np.asarray([0, 8, 16, 24]), 8, "x", 3).tolist() == [1, 4, 7, 2]


def test_rows_of_several_sources_at_once_are_those_of_each() -> None:
    chance_of = np.random.default_rng(1)
    sizes = np.asarray([1, 2, 3, 97, 128, 129, 5_000])
    sources, numbers = chance_of.integers(0, len(sizes), 900), chance_of.integers(0, 9_000, 900)
    found = draw_from(sources, numbers, sizes, "x", 3)
    assert found.dtype == np.int64
    for source, size in enumerate(sizes.tolist()):
        mine = sources == source
        assert np.array_equal(found[mine], draw(numbers[mine], size, "x", 3, source)), size
