"""Sampling: draw tokens by their probabilities, with noise that is a pure function of row, position and token.

    the argmax over tokens of (log share + Gumbel noise) is a draw in proportion to the shares (the Gumbel-max trick)

Rounding errors change such a draw only if two tokens are almost tied, so it is the same on every parallel layout; they
change a draw by inverse CDF more often. Noise for every token of a vocabulary would cost more than the scores, so a
draw has two steps: first a block of BLOCK neighboring tokens, by the sums of their shares, then a token of the block.
Each position hashes a few hundred numbers, and its draw does not depend on the rest of the batch.

    shares [n, V] -> sums [n, blocks] -> block [n] -> its shares [n, BLOCK] -> token [n]

If the vocabulary is split over ranks, each rank sums the shares of its tokens and looks at its tokens of the block.
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
_BLOCKS = 1 << 32  # noise of blocks is numbered from here, noise of tokens from 0
_GOLDEN, _FIRST, _SECOND = (n - (1 << 64) for n in (chance.GOLDEN, chance.FIRST, chance.SECOND))


def keys(key: int, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return chance.bits(key, numbers).view(np.int64)


@dataclass(frozen=True)
class Draw:
    """A draw of one token for each of n slots; the loss calls it while it has the shares of the tokens.

    Shares [n, W] are probabilities, up to a factor for each slot. They cover the complete vocabulary, or the W tokens
    from `first` on.
    """

    slot_keys: Tensor  # [rows * slots], from which the noise of each slot is hashed
    vocabulary: int
    temperature: float = 1.0
    never_right: bool = False  # never draw the target

    @staticmethod
    def of(
        row_keys: Tensor, slots: int, vocabulary: int, *, temperature: float = 1.0, never_right: bool = False
    ) -> Draw:
        slot_keys = _hashed(row_keys[:, None], torch.arange(slots, device=row_keys.device))
        return Draw(slot_keys.flatten(), vocabulary, temperature, never_right)

    @property
    def plain(self) -> bool:
        """Return whether tokens are drawn with the loss's own probabilities: no temperature, no target excluded."""
        return self.temperature == 1.0 and not self.never_right

    def tempered(self, scores: Tensor, targets: Tensor, first: int = 0) -> Tensor:
        """Return the scores that tokens are drawn by: divided by the temperature, -inf for a target to exclude."""
        tempered = scores / self.temperature
        if self.never_right and scores.shape[1]:  # a rank may hold no tokens
            here = (targets >= first) & (targets < first + scores.shape[1])
            at = (targets - first).clamp(0, scores.shape[1] - 1)[:, None]
            tempered.scatter_add_(1, at, torch.where(here, -torch.inf, 0.0)[:, None])
        return tempered

    def sums(self, shares: Tensor, first: int = 0) -> Tensor:
        """Return the sum of shares in each block of BLOCK tokens, [n, blocks]; tokens of other ranks count as 0."""
        words = shares.shape[1]
        lead = min(-first % BLOCK, words)  # tokens before the first complete block
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
        numbers = torch.arange(sums.shape[1], device=sums.device) + _BLOCKS
        return (sums.log() + gumbel(self.slot_keys[slots, None], numbers)).argmax(1)

    def word(self, shares: Tensor, block: Tensor, slots: slice, first: int = 0) -> tuple[Tensor, Tensor]:
        """Draw a token of each slot's block; return its log share + noise (-inf: on another rank) and its column."""
        words = block[:, None] * BLOCK + torch.arange(BLOCK, device=shares.device)
        columns = words - first
        here = (columns >= 0) & (columns < shares.shape[1])
        logs = shares.gather(1, columns.clamp(0, shares.shape[1] - 1)).log()
        noisy = torch.where(here, logs + gumbel(self.slot_keys[slots, None], words), -torch.inf)
        value, within = noisy.max(1)
        return value, columns.gather(1, within[:, None]).squeeze(1)


def gumbel(slot_keys: Tensor, numbers: Tensor) -> Tensor:
    """Return Gumbel noise, hashed from keys and numbers (broadcast to the same shape), in float32."""
    share = ((_hashed(slot_keys, numbers) >> 32) & 0xFFFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-32)
    share.clamp_(max=1 - 2.0**-24)  # a share rounded to 1 would give noise of -inf
    return share.neg_().log1p_().neg_().log_().neg_()  # log1p is exact for small shares, which give the largest noise


def _hashed(keys: Tensor, numbers: Tensor) -> Tensor:
    """Return 64 bits for each key and number: SplitMix64's finalizer, as in base/chance.py."""
    bits = keys ^ (numbers * _GOLDEN + _GOLDEN)
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FIRST
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return bits ^ ((bits >> 31) & 0x1FFFFFFFF)


def candidates(key: int, count: int, vocabulary: int) -> tuple[NDArray[np.int64], int]:
    """Draw `count` different tokens, log-uniform over a vocabulary that is sorted by decreasing frequency.

    Return the tokens and the number of draws that they took.
    """
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
    """Return the log of how often each token is expected among candidates that took `tries` draws."""
    words = words.double()  # in float32, 1 / (words + 1) of rare tokens would lose digits
    chance_of = torch.log1p(1 / (words + 1)) / math.log(vocabulary + 1)
    return torch.log(-torch.expm1(tries * torch.log1p(-chance_of))).float()
