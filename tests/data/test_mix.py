"""Mixes: shares by tokens; weights of very many."""

from __future__ import annotations

import numpy as np
import pytest

from ordsmed.base.errors import RecipeError
from ordsmed.data.mix import Mix, listed
from ordsmed.data.rows import FINE, PATTERN, Blend


def test_shares_by_temperature() -> None:
    assert Mix(temperature=1.0).shares([100, 300], 50) == [0.25, 0.75]
    assert Mix(temperature=0.0).shares([100, 300], 50) == [0.5, 0.5]
    assert Mix(temperature=0.5).shares([100, 900], 50) == pytest.approx([0.25, 0.75])


def test_shares_by_unimax() -> None:
    """All alike, but the small one as often as allowed; what it leaves goes to the others."""
    assert Mix(unimax=4).shares([1_000, 10, 500], 1_240) == pytest.approx([600 / 1_240, 40 / 1_240, 600 / 1_240])
    assert Mix(unimax=4).shares([10, 10], 20) == [0.5, 0.5]
    assert Mix(unimax=2).shares([10, 30], 80) == [0.25, 0.75], "all of it, exactly so often"
    with pytest.raises(RecipeError, match=r"mix\.unimax: found 2, which gives 80 tokens for a phase of 81; wanted 2.1"):
        Mix(unimax=2).shares([10, 30], 81)


def test_what_is_no_mix() -> None:
    for how in ({}, {"temperature": 0.5, "unimax": 4}, {"temperature": -0.1}, {"unimax": 0}):
        with pytest.raises(ValueError, match="wanted"):
            Mix(**how)
    assert listed(("a", "b")) == {"a": 1.0, "b": 1.0}
    with pytest.raises(ValueError, match="one or more different ones"):
        listed(("a", "a"))


def test_very_small_weights_have_their_rows() -> None:
    weights = [1.0, 2e-5, 1e-9, 0.5]
    blend = Blend([FINE, 50, 3, FINE], weights, 0)
    source, rows = blend.place(np.arange(2 * FINE, dtype=np.int64))
    counts = np.bincount(source)
    assert counts[2] == 2, "one in every pattern"
    assert counts / counts.sum() == pytest.approx(np.asarray(weights) / sum(weights), abs=2e-6)
    assert len(np.unique(rows[source == 3])) == counts[3], "no row twice in an epoch"
    assert len(Blend([7, 5], [1.0, 1e-4], 0).pattern) == PATTERN, "as it was"
