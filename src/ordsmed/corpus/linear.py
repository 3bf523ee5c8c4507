"""A linear classifier of documents: words and pairs of words hashed to weights, averaged, and a softmax over labels.

    "Buy now! 3 for 2"  ->  buy | now | ! | 0 | for | 0 | buy now | now ! | ...  ->  buckets  ->  mean of their weights
                            + bias  ->  softmax  ->  {"advert": 0.97, "prose": 0.03}

A token is a run of letters (lower case), of digits (all digits are equal, so only their number counts), of symbols, a
line end, or one ideograph. The model is fastText's classifier with as many dimensions as labels. It is implemented in
numpy on the bytes of many characters at a time.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordsmed.base import chance, files
from ordsmed.base.errors import DataError
from ordsmed.base.keys import bytes_key

Numbers = NDArray[np.uint64]
Floats = NDArray[np.float32]

WEIGHTS = "linear.npz"
VERSION = 1  # version of the hashing of texts to buckets
PART = 1 << 14  # characters hashed at once, so that the powers stay in the processor's cache
TOGETHER = 64  # documents in a training step
RATE = 0.5  # learning rate of Adagrad: its first step changes a weight by this much
_BLANK, _LETTER, _DIGIT, _SIGN, _LINE, _IDEOGRAPH, _INNER = range(7)


def _kinds() -> NDArray[np.uint8]:
    """Return the class of every byte of UTF-8. Continuation bytes never begin a token."""
    kinds = np.full(256, _SIGN, np.uint8)
    kinds[:33], kinds[10], kinds[127] = _BLANK, _LINE, _BLANK
    for code in range(128):
        if chr(code).isalnum():
            kinds[code] = _DIGIT if chr(code).isdigit() else _LETTER
    kinds[0x80:0xC0], kinds[0xC0:], kinds[0xE3:0xEA] = _INNER, _LETTER, _IDEOGRAPH  # U+3000 to U+9FFF
    return kinds


def _begins() -> NDArray[np.bool_]:
    kinds = _kinds()
    left, right = kinds[:, None], kinds[None, :]
    continues = (left == right) | ((left == _INNER) & (right == _LETTER))
    begins = (right != _BLANK) & (right != _INNER) & (~continues | (right == _IDEOGRAPH) | (right == _LINE))
    return np.ascontiguousarray(begins).reshape(-1)


def _values() -> Numbers:
    kinds, values = _kinds(), chance.bits(chance.key("linear", VERSION), np.arange(256))
    values[kinds == _DIGIT] = values[ord("0")]
    values[kinds == _BLANK] = 0
    return values


_BEGINS, _VALUES = _begins(), _values()
_BASE = 0x9E3779B97F4A7C15
_PAIR, _LAST = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xBF58476D1CE4E5B9)


@functools.cache
def _powers() -> tuple[Numbers, Numbers]:
    count, powers = 4 * PART + 1, []
    for base in (_BASE, pow(_BASE, -1, 1 << 64)):
        row, number = np.empty(count, np.uint64), 1
        for at in range(count):
            row[at] = number
            number = number * base & ((1 << 64) - 1)
        powers.append(row)
    return powers[0], powers[1]


def tokens(text: str) -> Numbers:
    """Return a hash of every token of a part of a text, in order: a polynomial of its bytes, by cumulative sums."""
    data = np.frombuffer(text.lower().encode("utf-8", "surrogatepass"), np.uint8)
    if not len(data):
        return np.zeros(0, np.uint64)
    pairs = data.astype(np.uint16)
    pairs[1:] |= pairs[:-1] << np.uint16(8)
    starts = np.flatnonzero(_BEGINS.take(pairs))
    powers, inverse = _powers()
    sums = np.empty(len(data) + 1, np.uint64)
    sums[0] = 0
    np.multiply(_VALUES.take(data), powers[: len(data)], out=sums[1:])
    np.cumsum(sums, out=sums)
    start_sums = sums.take(starts)
    ended = np.empty_like(start_sums)
    ended[:-1], ended[-1:] = start_sums[1:], sums[-1]
    ended -= start_sums
    ended *= inverse.take(starts)
    return ended


def buckets(text: str, bits: int) -> NDArray[np.int64]:
    """Return the indices of the weights of a part's words and pairs of words."""
    words = tokens(text)
    both = np.concatenate([words, words[:-1] * _PAIR + words[1:]])
    both ^= both >> np.uint64(29)
    both *= _LAST
    return (both >> np.uint64(64 - bits)).view(np.int64)


def parts(text: str) -> Iterator[str]:
    """Yield parts of a text that are hashed at once. A word across a border counts as two."""
    return (text[at : at + PART] for at in range(0, max(len(text), 1), PART))


@dataclass(frozen=True)
class Linear:
    """The labels, and the weights of every bucket."""

    labels: tuple[str, ...]
    weights: Floats  # [buckets, labels]
    bias: Floats

    @property
    def bits(self) -> int:
        return len(self.weights).bit_length() - 1

    def probabilities(self, text: str) -> list[float]:
        """Return the probability of each label. Pages have a few thousand characters, so every numpy call matters."""
        logits, bits, count = [0.0] * len(self.labels), self.bits, 0
        for part in parts(text):
            at = buckets(part, bits)
            for n, column in enumerate(self.weights.take(at, axis=0).T):  # faster than a sum over both at once
                logits[n] += float(column.sum())
            count += len(at)
        logits = [total / max(count, 1) + bias for total, bias in zip(logits, self.bias.tolist(), strict=True)]
        highest = max(logits)
        shares = [math.exp(logit - highest) for logit in logits]
        return [share / sum(shares) for share in shares]

    def save(self, folder: Path) -> None:
        file = io.BytesIO()
        labels = np.array(self.labels)
        np.savez_compressed(file, labels=labels, weights=self.weights, bias=self.bias, version=np.array(VERSION))
        with files.writing(folder / WEIGHTS) as out:
            out.write(file.getvalue())

    @staticmethod
    def load(folder: Path) -> Linear:
        path = folder / WEIGHTS
        wanted, remedy = "the weights of `ordsmed corpus judge`", "train it again"
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                linear = Linear(tuple(arrays["labels"].tolist()), arrays["weights"], arrays["bias"])
                version = int(arrays["version"])
        except FileNotFoundError:
            raise DataError(path, "no such file", wanted, remedy) from None
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(path, f"cannot be read: {error}", wanted, remedy) from None
        shape = (len(linear.weights), len(linear.labels))
        if linear.weights.shape != shape or shape[0] & (shape[0] - 1) or linear.bias.shape != shape[1:]:
            raise DataError(path, f"weights of shape {list(linear.weights.shape)}", wanted, remedy)
        if version != VERSION:
            raise DataError(path, f"hashed by version {version}", f"version {VERSION}", remedy)
        return linear


def stamp(folder: Path) -> str:
    return bytes_key((folder / WEIGHTS).read_bytes(), 16)


def label_range(labels: Sequence[str]) -> tuple[float, float] | None:
    """Return the lowest and the highest label if all are numbers, so that a document gets an expected value."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    return min(numbers), max(numbers)


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    shares = np.exp(logits - logits.max(-1, keepdims=True), dtype=np.float64)
    shares /= shares.sum(-1, keepdims=True)
    return shares


@dataclass(frozen=True)
class HashedDocuments:
    """Documents as concatenated buckets, and the number of each one's label."""

    buckets: NDArray[np.int32]
    ends: NDArray[np.int64]
    gold: NDArray[np.int64]

    @staticmethod
    def of(texts: Sequence[str], gold: Sequence[int], bits: int) -> HashedDocuments:
        rows = [np.concatenate([buckets(part, bits) for part in parts(text)]).astype(np.int32) for text in texts]
        ends = np.cumsum([len(row) for row in rows])
        return HashedDocuments(np.concatenate(rows), ends, np.array(gold))

    def some(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        begins = np.where(chosen > 0, self.ends[chosen - 1], 0)
        sizes = self.ends[chosen] - begins
        rows = [self.buckets[a:b] for a, b in zip(begins, self.ends[chosen], strict=True)]
        return np.concatenate(rows), sizes


def learn(
    texts: Sequence[str], gold: Sequence[int], labels: Sequence[str], *, bits: int, epochs: int, seed: int
) -> Linear:
    """Train with Adagrad for `epochs` passes in random order. Every label has the same total weight."""
    examples, count = HashedDocuments.of(texts, gold, bits), len(labels)
    linear = Linear(tuple(labels), np.zeros((1 << bits, count), np.float32), np.zeros(count, np.float32))
    squares, bias_squares = np.zeros_like(linear.weights), np.zeros(count, np.float32)
    often = np.bincount(examples.gold, minlength=count)
    weight = (len(gold) / count / np.maximum(often, 1)).astype(np.float32)
    for epoch in range(epochs):
        order = np.argsort(chance.bits(chance.key("judge", seed, epoch), np.arange(len(gold))), kind="stable")
        for at in range(0, len(order), TOGETHER):
            chosen = order[at : at + TOGETHER]
            rows, sizes = examples.some(chosen)
            errors = _errors(linear, rows, sizes, examples.gold[chosen]) * weight[examples.gold[chosen], None]
            repeated = np.repeat(errors / np.maximum(sizes, 1)[:, None], sizes, axis=0)
            different, inverse = np.unique(rows, return_inverse=True)
            gradient = np.stack([np.bincount(inverse, repeated[:, n], len(different)) for n in range(count)], 1)
            _step(linear.weights, squares, different, gradient)
            _step(linear.bias[None], bias_squares[None], np.zeros(1, np.int64), errors.sum(0)[None])
    return linear


def _errors(linear: Linear, rows: NDArray[np.int32], sizes: NDArray[np.int64], gold: NDArray[np.int64]) -> Floats:
    sums = np.concatenate([np.zeros((1, len(linear.labels))), np.cumsum(linear.weights[rows], 0, np.float64)])
    ends = np.cumsum(sizes)
    shares = softmax((sums[ends] - sums[ends - sizes]) / np.maximum(sizes, 1)[:, None] + linear.bias)
    shares[np.arange(len(gold)), gold] -= 1
    return shares.astype(np.float32)


def _step(weights: Floats, squares: Floats, at: NDArray[Any], gradient: NDArray[Any]) -> None:
    total = squares[at] + (gradient * gradient).astype(np.float32)
    squares[at] = total
    weights[at] -= (RATE * gradient / np.sqrt(total + 1e-12)).astype(np.float32)
