"""Shares of a corpus: what is said of them, and how many documents fall where."""

from __future__ import annotations

import numpy as np
import pytest

from ordsmed.corpus.splits import Shares

DRAWS = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)


def sizes(shares: Shares, draws: np.ndarray) -> tuple[int, int, int]:
    first, second = shares.borders(draws)
    held = int((draws < first).sum()), int((draws < second).sum())
    return len(draws) - held[1], held[0], held[1] - held[0]


@pytest.mark.parametrize(
    ("text", "validation", "test"),
    [
        ("949,50,1", 0.05, 0.001),
        ("95/5", 0.05, 0),
        ("0.9", 0.1, 0),
        ("0.9,0.05", 0.05, 0.05),
        ("1", 0, 0),
        ("8,1,1", 0.1, 0.1),
        ("0.5,0.2,0.1", 0.25, 0.125),  # of three the last is no rest
        ("0.4,0.1", 0.1, 0.5),
        ("1,1", 0.5, 0),
    ],
)
def test_proportions(text: str, validation: float, test: float) -> None:
    shares = Shares.read(text, exact=False)
    assert (shares.validation, shares.test) == pytest.approx((validation, test))


@pytest.mark.parametrize("text", ["", "a,b", "0,1", "1,2,3,4", "-1,2", "nan,1", "inf"])
def test_other_proportions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="split: found"):
        Shares.read(text, exact=False)


def test_too_large_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="less than 1 together"):
        Shares(0.5, 0.5)


def test_what_is_given_returns_its_share_to_the_others() -> None:
    shares = Shares.read("949,50,1", exact=False).without(validation=False, test=True)
    assert (shares.validation, shares.test) == pytest.approx((50 / 999, 0))
    shares = Shares.read("949,50,1", exact=False).without(validation=True, test=True)
    assert (shares.validation, shares.test) == (0, 0)


def test_shares_are_met_nearly_or_exactly() -> None:
    train, validation, test = sizes(Shares(0.05, 0.001), DRAWS)
    assert train + validation + test == len(DRAWS)
    assert abs(validation - 5000) < 300
    assert abs(test - 100) < 50
    assert sizes(Shares(0.05, 0.001, exact=True), DRAWS) == (94_900, 5_000, 100)


def test_a_side_does_not_change_when_documents_are_added() -> None:
    some, all_ = Shares(0.05, 0.01).borders(DRAWS[:1000]), Shares(0.05, 0.01).borders(DRAWS)
    for one, other in zip(some, all_, strict=True):
        assert ((DRAWS[:1000] < one) == (DRAWS[:1000] < other)).all()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("count", "wanted"), [(0, (0, 0, 0)), (1, (1, 0, 0)), (2, (1, 1, 0)), (3, (1, 1, 1)), (9, (7, 1, 1))]
)
def test_a_small_corpus_has_one_of_each_before_two_of_one(count: int, wanted: object, exact: bool) -> None:
    assert sizes(Shares(1e-6, 1e-6, exact), DRAWS[:count]) == wanted


def test_equal_texts_stay_together() -> None:
    draws = np.repeat(DRAWS[:5], 3)
    assert sizes(Shares(1e-6), draws) == (12, 3, 0)
    assert sizes(Shares(1e-6), draws[:3]) == (3, 0, 0)
    assert sizes(Shares(0.9), draws[:6]) == (3, 3, 0)


@pytest.mark.parametrize(("count", "share", "held"), [(10, 0.17, 2), (10, 0.14, 1), (7, 0.36, 3), (1000, 0.0026, 3)])
def test_exact_shares_are_rounded_to_the_nearest(count: int, share: float, held: int) -> None:
    assert sizes(Shares(share, exact=True), DRAWS[:count]) == (count - held, held, 0)
    assert sizes(Shares(0.0, share, exact=True), DRAWS[:count]) == (count - held, 0, held)


def test_one_document_is_left_to_train_on_however_large_a_share() -> None:
    for count in (2, 10, 40):
        assert sizes(Shares(0.99, exact=True), DRAWS[:count]) == (1, count - 1, 0)
        assert sizes(Shares(0.5, 0.49, exact=True), DRAWS[:count])[0] == 1
