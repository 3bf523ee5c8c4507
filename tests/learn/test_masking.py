"""Masking: so many places, only where it may, 80/10/10, words whole; by number alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ordsmed.learn.masking import amounts, choose, choose_words, corrupt, slots

MASK, SPECIAL, VOCABULARY = 4, 5, 1000  # ids below SPECIAL are special
WORDS = np.arange(SPECIAL, VOCABULARY)
flags = st.integers(1, 40).flatmap(lambda length: arrays(np.bool_, st.tuples(st.integers(1, 6), st.just(length))))
shares = st.floats(0.01, 0.99)


def numbers_of(allowed: np.ndarray, first: int = 0) -> np.ndarray:
    return np.arange(first, first + len(allowed))


def in_words(allowed: np.ndarray, seed: int) -> np.ndarray:
    """Where words go on: nearly half of the places, never the first of a row."""
    continues = np.random.default_rng(seed).random(allowed.shape) < 0.45
    continues[:, 0] = False
    return continues


def words_of(allowed: np.ndarray, continues: np.ndarray) -> list[list[int]]:
    """The words of one row, one after the other."""
    found: list[list[int]] = []
    for place in np.flatnonzero(allowed):
        if found and continues[place] and found[-1][-1] == place - 1:
            found[-1].append(int(place))
        else:
            found.append([int(place)])
    return found


def test_slots() -> None:
    assert [slots(0.15, n) for n in (20, 100, 128, 512)] == [3, 15, 20, 77]
    assert slots(0.15, 1) == 1
    assert slots(0.1, 30) == 3  # 0.1 x 30 is a little more than 3 in a machine's numbers


def test_amounts_by_hand() -> None:
    lengths = [0, 1, 3, 10, 20, 30, 100]
    allowed = np.arange(100) < np.asarray(lengths)[:, None]
    assert amounts(allowed, 0.15, 12).tolist() == [0, 1, 1, 2, 3, 4, 12]


@given(flags, shares)
def test_a_slot_for_every_prediction(allowed: np.ndarray, share: float) -> None:
    limit = slots(share, allowed.shape[1])
    amount, able = amounts(allowed, share, 10**6), allowed.sum(1)
    assert (amount <= limit).all()
    assert (amount == np.minimum(np.maximum(np.rint(able * share), 1), able)).all()


@given(flags, shares, st.integers(0, 2**64 - 1))
def test_so_many_of_the_allowed_places(allowed: np.ndarray, share: float, key: int) -> None:
    limit = slots(share, allowed.shape[1])
    amount = amounts(allowed, share, limit)
    places, weights = choose(allowed, amount, limit, key, numbers_of(allowed))
    assert places.shape == weights.shape == (len(allowed), limit)
    assert weights.dtype == np.float32
    for row in range(len(allowed)):
        used = weights[row] > 0
        assert set(weights[row]) <= {0.0, 1.0}
        assert used.sum() == amount[row]
        assert (np.diff(places[row][used]) > 0).all(), "in order, none twice"
        assert allowed[row, places[row][used]].all()
        assert not places[row][~used].any()
        assert (np.diff(used.astype(int)) <= 0).all(), "unused slots stand last"


@given(flags, shares, st.integers(0, 2**32), st.integers(0, 9))
def test_words_whole_and_never_too_many(allowed: np.ndarray, share: float, key: int, seed: int) -> None:
    limit, continues = slots(share, allowed.shape[1]), in_words(allowed, seed)
    amount = amounts(allowed, share, limit)
    places, weights = choose_words(allowed, continues, amount, limit, key, numbers_of(allowed))
    assert places.shape == weights.shape == (len(allowed), limit)
    for row in range(len(allowed)):
        chosen = places[row][weights[row] > 0].tolist()
        assert chosen == sorted(set(chosen))
        assert len(chosen) <= amount[row]
        words = words_of(allowed[row], continues[row])
        taken = [word for word in words if set(word) & set(chosen)]
        assert sorted(p for word in taken for p in word) == chosen, "a word is hidden whole or not at all"
        left = amount[row] - len(chosen)
        assert all(len(word) > left for word in words if word not in taken), "another word would have fitted"


@pytest.mark.parametrize("unit", ["token", "word"])
def test_a_row_has_its_own_masks_in_any_batch(unit: str) -> None:
    generator = np.random.default_rng(0)
    allowed, tokens = generator.random((30, 60)) < 0.9, generator.integers(SPECIAL, VOCABULARY, (30, 60))
    continues, limit = in_words(allowed, 1), slots(0.15, 60)

    def masked(rows: np.ndarray, numbers: np.ndarray, key: int = 7) -> tuple[np.ndarray, ...]:
        amount = amounts(allowed[rows], 0.15, limit)
        if unit == "word":
            chosen = choose_words(allowed[rows], continues[rows], amount, limit, key, numbers)
        else:
            chosen = choose(allowed[rows], amount, limit, key, numbers)
        return (*chosen, *corrupt(tokens[rows], *chosen, key, numbers, mask=MASK, keep=0.1, swap=0.1, words=WORDS))

    rows = np.arange(30)
    together = masked(rows, rows + 100)
    for some in (np.asarray([4]), np.asarray([29, 3, 17]), rows[::-1]):
        for mine, theirs in zip(masked(some, some + 100), together, strict=True):
            assert np.array_equal(mine, theirs[some])
    for other in (masked(rows, rows + 101), masked(rows, rows + 100, key=8), masked(rows, rows + (1 << 33))):
        assert (other[0] == together[0]).mean() < 0.5
        assert not np.array_equal(other[2], together[2])


@given(flags, shares, st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 2**32))
def test_only_what_was_chosen_is_changed(allowed: np.ndarray, share: float, keep: float, swap: float, key: int) -> None:
    tokens = np.arange(allowed.size).reshape(allowed.shape) + SPECIAL
    limit, numbers = slots(share, allowed.shape[1]), numbers_of(allowed)
    places, weights = choose(allowed, amounts(allowed, share, limit), limit, key, numbers)
    before = tokens.copy()
    shown, targets = corrupt(tokens, places, weights, key, numbers, mask=MASK, keep=keep, swap=swap, words=WORDS)
    assert np.array_equal(tokens, before)
    chosen = np.zeros_like(allowed)
    row, slot = np.nonzero(weights)
    chosen[row, places[row, slot]] = True
    assert np.array_equal(shown[~chosen], tokens[~chosen])
    assert np.array_equal(targets[row, slot], tokens[row, places[row, slot]])
    assert all(s in (t, MASK) or s in WORDS for s, t in zip(shown[chosen], tokens[chosen], strict=True))


@pytest.mark.parametrize(("keep", "swap"), [(0.1, 0.1), (0.0, 0.0), (0.25, 0.5), (1.0, 0.0), (0.0, 1.0)])
def test_shares_of_mask_keep_and_swap(keep: float, swap: float) -> None:
    rows, length = 1500, 128
    tokens = np.full((rows, length), 7)  # no swap may be told from a kept token but one in 995
    numbers, allowed = np.arange(rows), np.ones((rows, length), np.bool_)
    allowed[:, 0] = allowed[:, -1] = False
    amount = amounts(allowed, 0.15, slots(0.15, length))
    chosen = choose(allowed, amount, slots(0.15, length), 3, numbers)
    shown, _ = corrupt(tokens, *chosen, 3, numbers, mask=MASK, keep=keep, swap=swap, words=WORDS)
    at = np.take_along_axis(shown, chosen[0], 1)[chosen[1] > 0]
    assert len(at) == 19 * rows
    found = {"mask": (at == MASK).mean(), "keep": (at == 7).mean(), "swap": ((at != MASK) & (at != 7)).mean()}
    wanted = {"mask": 1 - keep - swap, "keep": keep + swap / 995, "swap": swap * 994 / 995}
    assert found == pytest.approx(wanted, abs=0.01)
    if swap:
        swapped = at[(at != MASK) & (at != 7)]
        assert swapped.min() >= SPECIAL
        assert swapped.max() < VOCABULARY
        assert len(np.unique(swapped)) > 900


def test_every_place_is_chosen_about_as_often() -> None:
    rows, length = 20_000, 20
    allowed = np.ones((rows, length), np.bool_)
    limit = slots(0.15, length)
    places, weights = choose(allowed, amounts(allowed, 0.15, limit), limit, 11, np.arange(rows))
    assert weights.all()
    counts = np.bincount(places.ravel(), minlength=length)
    assert np.abs(counts / rows - 0.15).max() < 0.012
    pairs = np.bincount(places[:, 0] * length + places[:, 1], minlength=length**2)
    assert pairs.max() < rows / 190 * 3.5  # no two places go together
