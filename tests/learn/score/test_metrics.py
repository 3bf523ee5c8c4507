"""Metrics by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ordsmed.learn.score.metrics import below, in_words, share_guessed, unigram_cross_entropy


def test_unigram_cross_entropy() -> None:
    counts, targets = np.asarray([3, 0, 4, 1]), np.asarray([0, 0, 1, 2])  # with one added: 4 1 5 2 of 12
    wanted = -(2 * math.log(4 / 12) + math.log(1 / 12) + math.log(5 / 12)) / 4
    assert unigram_cross_entropy(counts, targets) == pytest.approx(wanted)
    even = unigram_cross_entropy(np.full(50, 9), np.arange(50))
    assert even == pytest.approx(math.log(50))


def test_below() -> None:
    assert below(4.4, 5.0) == pytest.approx(0.12)
    assert below(6.0, 5.0) == pytest.approx(-0.2)


def test_of_two_things_the_more_frequent_is_said() -> None:
    loss = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    for share in (0.25, 0.75):
        assert share_guessed("pair", share) == {"pair": pytest.approx(loss), "pair_right": 0.75}
    for share in (0.0, 1.0):
        assert share_guessed("pair", share) == {"pair": 0.0, "pair_right": 1.0}


def test_a_measure_for_a_person() -> None:
    assert in_words("perplexity_forward", 1234.567) == "1,234.57"
    assert in_words("balanced", 0.71234) == "71.2%"
