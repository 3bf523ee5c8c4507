"""Metrics: numbers from sums, as free functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unigram_cross_entropy(counts: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    """Mean -log p of the targets under how often each token stood in training, one added to every count."""
    p = (counts + 1.0) / (counts.sum() + len(counts))
    return float(-np.log(p[targets]).mean())


def in_words(name: str, value: float) -> str:
    """A measure for a person: perplexities are numbers, all others shares."""
    return f"{value:,.2f}" if "perplexity" in name else f"{value:.1%}"


def below(value: float, reference: float) -> float:
    """By which share a value is below a reference."""
    return 1 - value / reference
