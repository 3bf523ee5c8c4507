"""Sampling: words drawn by their probabilities with noise that is a pure function of row, place and word.

    argmax over words of (score / temperature + Gumbel noise) is a draw from the softmax (the Gumbel-max trick)

Such a draw moves only when two words are all but equal, so it is the same on every layout, and where words are split
over ranks each rank looks at its own. Noise is hashed once a row, for the vocabulary and a little more; the places of
a row read it from starts that lie STEP words apart. Each place's draw is exact; two places of a row share noise only
between words that stand STEP apart in the vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import chance

STEP, RUN = 61, 128
_GOLDEN, _FIRST, _SECOND = (n - (1 << 64) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def keys(key: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the noise of each row is hashed from."""
    return chance.bits(key, numbers).view(np.int64)


@dataclass(frozen=True)
class Draw:
    """How the words of so many places a row are drawn; the loss calls it with scores while they are at hand."""

    noise: Tensor  # [B, vocabulary + STEP * (places - 1)]
    places: int
    temperature: float = 1.0
    never_right: bool = False  # a draw is never the right word

    @staticmethod
    def of(
        row_keys: Tensor, places: int, vocabulary: int, *, temperature: float = 1.0, never_right: bool = False
    ) -> Draw:
        """Draws for rows with these keys, [B]."""
        return Draw(gumbel(row_keys, vocabulary + STEP * (places - 1)), places, temperature, never_right)

    def best(self, scores: Tensor, rows: slice, targets: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """Highest noisy score of each of some slots, and its column; scores, [n, V], are of the words from `first`."""
        words, device = scores.shape[1], scores.device
        value = torch.empty(len(scores), device=device)
        column = torch.empty(len(scores), dtype=torch.int64, device=device)
        wide = -(-words // RUN) * RUN  # whole runs; what is behind the words is never the highest
        room = torch.full((min(self.places, len(scores)), wide), -torch.inf, device=device)
        for row in range(rows.start // self.places, -(-rows.stop // self.places)):
            begin, end = max(row * self.places, rows.start), min((row + 1) * self.places, rows.stop)
            part = slice(begin - rows.start, end - rows.start)
            at = (begin - row * self.places) * STEP + first
            noise = self.noise[row, at:].as_strided((end - begin, words), (STEP, 1))
            noisy = room[: end - begin]
            torch.add(noise, scores[part], alpha=1 / self.temperature, out=noisy[:, :words])
            if self.never_right:
                own = (targets[part] >= first) & (targets[part] < first + words)
                noisy[own, (targets[part] - first)[own]] = -torch.inf
            value[part], column[part] = highest(noisy)
        return value, column


def highest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The highest score of each row, [n, k * RUN], and where: the highest of each run first, then within one run.

    The same as `max`, which on a CPU looks at one number at a time.
    """
    runs = scores.unflatten(1, (-1, RUN))
    best = runs.amax(-1).argmax(1)
    value, within = runs[torch.arange(len(scores), device=scores.device), best].max(1)
    return value, best * RUN + within


def gumbel(row_keys: Tensor, count: int) -> Tensor:
    """Gumbel noise, [B, count], hashed from each row's key and the column; 32 bits each."""
    columns = torch.arange(count, device=row_keys.device)
    bits = row_keys[:, None] ^ (columns * _GOLDEN + _GOLDEN)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST  # SplitMix64's finaliser, as in base/chance.py
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    share = ((bits >> 32) & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32)
    return share.neg_().log1p_().neg_().log_().neg_()  # exponential noise is smallest, and exact, where share is small


def candidates(key: int, count: int, vocabulary: int) -> tuple[NDArray[np.int64], int]:
    """So many different words, the frequent ones likelier (log-uniform over a vocabulary in order of frequency), and
    how many draws that took."""
    drawn = np.zeros(0, np.int64)
    while True:
        drawn = np.concatenate([drawn, _log_uniform(key, len(drawn), 2 * count, vocabulary)])
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= count:
            first.sort()
            return drawn[first[:count]], int(first[count - 1]) + 1


def _log_uniform(key: int, start: int, count: int, vocabulary: int) -> NDArray[np.int64]:
    spread = np.exp(chance.unit(key, np.arange(start, start + count)) * np.log(vocabulary + 1))
    return np.minimum(spread.astype(np.int64) - 1, vocabulary - 1)


def log_expected(words: Tensor, tries: Tensor, vocabulary: int) -> Tensor:
    """Log of how often each word is expected among candidates that took so many draws."""
    words = words.double()  # of a rare word 1 is added to a number near it
    chance_of = torch.log1p(1 / (words + 1)) / math.log(vocabulary + 1)
    return torch.log(-torch.expm1(tries * torch.log1p(-chance_of))).float()
