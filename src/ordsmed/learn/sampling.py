"""Sampling: words drawn by their probabilities with noise that is a pure function of row, place and word.

    argmax over words of (log share + Gumbel noise) is a draw by the shares (the Gumbel-max trick)

Such a draw moves only when two words are all but equal, so it is the same on every layout; an inverse CDF flips with a
rounding. Noise for every word of a vocabulary would cost more than the scores, so a draw is made in two: one of blocks
of BLOCK neighboring words, by the sums of their shares, then one within the block. Each place hashes a few hundred
numbers of its own, so draws are exact, alone and together.

    shares [n, V] -> sums [n, blocks] -> block [n] -> its shares [n, BLOCK] -> word [n]

Where the words are split over ranks, each adds up its own shares and looks at its own words of the block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordsmed.base import chance

BLOCK = 128
_BLOCKS = 1 << 32  # counters of blocks begin here, those of words at 0
_GOLDEN, _FIRST, _SECOND = (n - (1 << 64) for n in (chance.GOLDEN, chance.FIRST, chance.SECOND))


def keys(key: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """What the noise of each row is hashed from."""
    return chance.bits(key, numbers).view(np.int64)


@dataclass(frozen=True)
class Draw:
    """How the words of so many slots are drawn; the loss calls it while it has their shares.

    Shares, [n, W], are exponentials of scores, less a number that is the same for all words of a slot; of the whole
    vocabulary, or of W words from `first` on.
    """

    slot_keys: Tensor  # [rows * places], what the noise of each slot is hashed from
    vocabulary: int
    temperature: float = 1.0
    never_right: bool = False  # a draw is never the right word

    @staticmethod
    def of(
        row_keys: Tensor, slots: int, vocabulary: int, *, temperature: float = 1.0, never_right: bool = False
    ) -> Draw:
        """Draws for the places of rows with these keys, [B]."""
        slot_keys = _hashed(row_keys[:, None], torch.arange(slots, device=row_keys.device))
        return Draw(slot_keys.flatten(), vocabulary, temperature, never_right)

    @property
    def plain(self) -> bool:
        """Are words drawn by the very shares that the loss is made of?"""
        return self.temperature == 1.0 and not self.never_right

    def tempered(self, scores: Tensor, targets: Tensor, first: int = 0) -> Tensor:
        """The scores that words are drawn by."""
        tempered = scores / self.temperature
        if self.never_right and scores.shape[1]:  # a rank may hold no word
            here = (targets >= first) & (targets < first + scores.shape[1])
            at = (targets - first).clamp(0, scores.shape[1] - 1)[:, None]
            tempered.scatter_add_(1, at, torch.where(here, -torch.inf, 0.0)[:, None])
        return tempered

    def sums(self, shares: Tensor, first: int = 0) -> Tensor:
        """The shares of each block added up, [n, blocks]; words that are not here count nothing."""
        words = shares.shape[1]
        lead = min(-first % BLOCK, words)  # up to where a block begins
        whole = (words - lead) // BLOCK * BLOCK
        parts = [shares[:, :lead], shares[:, lead + whole :]]
        begin, tail = (part.sum(1, keepdim=True) if part.shape[1] else part for part in parts)
        middle = shares[:, lead : lead + whole].unflatten(1, (-1, BLOCK)).sum(2) if whole else shares[:, :0]
        sums = torch.cat([begin, middle, tail], 1)
        if words == self.vocabulary:
            return sums
        blocks = -(-self.vocabulary // BLOCK)
        before = min(first // BLOCK, blocks)
        return torch.nn.functional.pad(sums, (before, blocks - before - sums.shape[1]))

    def block(self, sums: Tensor, slots: slice) -> Tensor:
        """The block that each of some slots draws, [n]."""
        numbers = torch.arange(sums.shape[1], device=sums.device) + _BLOCKS
        return (sums.log() + gumbel(self.slot_keys[slots, None], numbers)).argmax(1)

    def word(self, shares: Tensor, block: Tensor, slots: slice, first: int = 0) -> tuple[Tensor, Tensor]:
        """The word that each slot draws within its block: how high it stands (-inf: elsewhere), and its column."""
        words = block[:, None] * BLOCK + torch.arange(BLOCK, device=shares.device)
        columns = words - first
        here = (columns >= 0) & (columns < shares.shape[1])
        logs = shares.gather(1, columns.clamp(0, shares.shape[1] - 1)).log()
        noisy = torch.where(here, logs + gumbel(self.slot_keys[slots, None], words), -torch.inf)
        value, within = noisy.max(1)
        return value, columns.gather(1, within[:, None]).squeeze(1)


def gumbel(slot_keys: Tensor, numbers: Tensor) -> Tensor:
    """Gumbel noise hashed from keys and numbers, which are broadcast; 32 bits each."""
    share = ((_hashed(slot_keys, numbers) >> 32) & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32)
    share.clamp_(max=1 - 2.0**-24)  # rounded to 1 it would be noise of -inf
    return share.neg_().log1p_().neg_().log_().neg_()  # exponential noise is smallest, and exact, where share is small


def _hashed(keys: Tensor, numbers: Tensor) -> Tensor:
    """64 bits for each key and number: SplitMix64's finaliser, as in base/chance.py."""
    bits = keys ^ (numbers * _GOLDEN + _GOLDEN)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)


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
    values = np.exp(chance.unit(key, np.arange(start, start + count)) * np.log(vocabulary + 1))
    words: NDArray[np.int64] = np.minimum(values.astype(np.int64) - 1, vocabulary - 1)
    return words


def log_expected(words: Tensor, tries: Tensor, vocabulary: int) -> Tensor:
    """Log of how often each word is expected among candidates that took so many draws."""
    words = words.double()  # of a rare word 1 is added to a number near it
    chance_of = torch.log1p(1 / (words + 1)) / math.log(vocabulary + 1)
    return torch.log(-torch.expm1(tries * torch.log1p(-chance_of))).float()
