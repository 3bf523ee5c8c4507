"""Which network a time and a text allow: larger ones with more time, smaller ones for little text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ordsmed.maker import networks
from ordsmed.maker.networks import families

LADDER = {kind: networks.network_sizes(family, 8_000, family.length or 64) for kind, family in families().items()}


@pytest.mark.parametrize("kind", families())
def test_each_ladder_rises(kind: str) -> None:
    weights = [size.weights for size in LADDER[kind]]
    assert weights == sorted(weights)
    assert all(size.operations > size.weights for size in LADDER[kind])


def test_more_time_gives_no_smaller_network() -> None:
    chosen = [networks.best(LADDER["bert"], operations, 1e9, 100).weights for operations in (1e12, 1e14, 1e16, 1e18)]
    assert chosen == sorted(chosen)
    assert chosen[0] < chosen[-1]


def test_little_text_gives_a_small_network() -> None:
    small, large = (networks.best(LADDER["bert"], 1e17, unique, 100) for unique in (1e4, 1e8))
    assert small.weights < large.weights
    assert small.tokens == 100 * 1e4  # it does not read more often than pays


def test_a_network_that_is_large_for_its_text_reads_it_less_often() -> None:
    [size] = [size for size in LADDER["bert"] if size.table["width"] == 128]
    family = replace(families()["bert"], passes=160, crowding=1.5, least=0)
    passes = [networks.max_passes(size, size.weights / ratio, family) for ratio in (1, 2, 4, 8)]
    assert passes == pytest.approx([160, 160, 160 / 2**1.5, 20])
    assert networks.max_passes(size, 1024 * 10, replace(family, least=2_000)) == 200


def test_repeated_tokens_are_worth_less() -> None:
    assert networks.distinct_tokens(50, 100, 60) == 50
    assert networks.distinct_tokens(100, 100, 60) == 100
    assert 190 < networks.distinct_tokens(200, 100, 60) < 200
    assert networks.distinct_tokens(1e9, 100, 60) == pytest.approx(100 * (1 + 15))


def test_operations_are_those_of_a_step() -> None:
    """Three times forward, of which the output layer scores the hidden tokens alone."""
    family = families()["bert"]
    [size] = [size for size in LADDER["bert"] if size.table["width"] == 192]
    forward = size.model.flops(64)
    assert size.operations == pytest.approx(3 * (forward + 2 * 192 * 8_000 * family.objective["mask_prob"]))
