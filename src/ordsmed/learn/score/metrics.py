"""Baselines of losses, and formats of metrics."""

import math

import numpy as np
from numpy.typing import NDArray


def unigram_cross_entropy(counts: NDArray[np.int64], targets: NDArray[np.int64]) -> float:
    """Return the mean -log p of the targets by their frequency in training, with add-one smoothing."""
    p = (counts + 1.0) / (counts.sum() + len(counts))
    return float(-np.log(p[targets]).mean())


def share_guessed(term: str, share: float) -> dict[str, float]:
    """Return loss and accuracy of guessing between two classes with the frequencies `share` and 1 - share."""
    parts = [p for p in (share, 1 - share) if p > 0]
    return {term: -sum(p * math.log(p) for p in parts), f"{term}_right": max(share, 1 - share)}


def in_words(name: str, value: float) -> str:
    return f"{value:,.2f}" if "perplexity" in name else f"{value:.1%}"


def below(value: float, reference: float) -> float:
    return 1 - value / reference
