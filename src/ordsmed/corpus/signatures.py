"""Signatures by MinHash: what a text is compared by with very many others, and when two are near duplicates.

A text is case-folded, and only its letters, digits and marks are looked at: copies that differ by white space and
punctuation alone are equal. (Of a text without any, all but white space counts.) A shingle is `shingle` units in a row;
a letter is one unit, an ideograph, kana or Hangul syllable three, so that 7 units are 7 letters or 3 ideographs. A text
too short for one shingle is one shingle. A signature is a one-permutation MinHash: a 64-bit hash of each shingle names
one of `permutations` bins, which keeps the least; an empty bin copies another's, the first that is not empty in an
order of its own. The share of bins in which two signatures agree estimates the Jaccard similarity of the sets of
shingles, with a standard error of about sqrt(J (1 - J) / permutations): 0.04 at 0.7 and 128.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from ordsmed.base import chance

Array = np.ndarray[Any, Any]

SURE = 0.985  # the least probability that a pair at the threshold shares a bucket
ERRORS = 2  # standard errors from the threshold within which it is too close to call
BATCH = 1 << 16  # characters hashed at once: they stay in the processor's cache
EMPTY = 0xFFFFFFFF  # a bin without a shingle
WIDE = 0x2E80  # the first code of East Asian writing
ODD = np.uint64(chance.GOLDEN)
VERSION = 2  # of signatures: what was signed by another is signed anew
BLANK, SIGN, LETTER = range(3)


@dataclass(frozen=True)
class Near:
    """When two documents are so similar that only the better one is kept."""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("sources", "into")

    threshold: float = 0.7
    "Jaccard similarity of their sets of shingles from which on the lesser document is dropped"
    shingle: int = 7
    "letters of a shingle, digits and marks among them; an ideograph counts as three"
    permutations: int = 128
    "numbers of a signature: four times as many halve the error of the estimate"
    keep: Literal["longest", "first"] = "longest"
    "which document of a group is kept"
    sources: int = 1
    "least number of the corpus's sources that have the document or one like it; what fewer have is dropped"
    into: str = ""
    "name in a document's meta of the number of sources that have it or one like it; empty: it is not kept"
    seed: int = 0
    "of the hashes"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold: found {self.threshold}; wanted more than 0, at most 1")
        for name, least, most in (
            ("shingle", 1, 1000),
            ("permutations", 16, 4096),
            ("sources", 1, 1000),
            ("seed", 0, 2**63),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted from {least} to {most}")

    def bands(self) -> tuple[int, int]:
        """Bands, and rows of each: the most rows that find a pair at the threshold surely enough."""
        for rows in range(self.permutations, 1, -1):
            bands = self.permutations // rows
            if 1 - (1 - self.threshold**rows) ** bands >= SURE:
                return bands, rows
        return self.permutations, 1

    def doubt(self) -> float:
        """How near to the threshold an estimate settles nothing."""
        return float(ERRORS * (self.threshold * (1 - self.threshold) / self.permutations) ** 0.5)


def signatures(texts: Sequence[str], how: Near) -> Array:
    """A row of `permutations` '<u4' for each text; the same on any machine and in any company."""
    least = np.full(len(texts) * how.permutations, EMPTY, "<u4")
    bins = np.uint64(how.permutations)
    for rows, hashes in _hashed(texts, how):
        place = rows * how.permutations + ((hashes >> np.uint64(32)) * bins >> np.uint64(32)).view(np.int64)
        np.minimum.at(least, place, hashes.astype("<u4"))
    rows_of_bins = least.reshape(len(texts), how.permutations)
    for start in range(0, len(rows_of_bins), 8192):
        _fill(rows_of_bins[start : start + 8192])
    return rows_of_bins


def jaccard(first: str, second: str, how: Near) -> float:
    """The similarity of two texts, exactly."""
    return overlap(shingles(first, how), shingles(second, how))


def _hashed(texts: Iterable[str], how: Near) -> Iterator[tuple[Array, Array]]:
    """The shingles of many texts in batches: whose they are, and their hashes."""
    rows, pieces, length = list[int](), list[Array](), 0
    for row, piece in _pieces(texts, how.shingle):
        rows.append(row)
        pieces.append(piece)
        length += len(piece)
        if length >= BATCH:
            yield _hash(rows, pieces, how)
            rows, pieces, length = [], [], 0
    if pieces:
        yield _hash(rows, pieces, how)


def _pieces(texts: Iterable[str], shingle: int) -> Iterator[tuple[int, Array]]:
    """Codes of letters: a long text in pieces that overlap by a shingle, a short one filled up to a shingle."""
    for row, text in enumerate(texts):
        codes = _units(text)
        if len(codes) < shingle:
            units = len(codes) + 2 * int((codes >= WIDE).sum())
            codes = np.append(codes, np.zeros(max(shingle - units, 0), "<u4"))
        for start in range(0, max(len(codes) - shingle + 1, 1), BATCH):
            yield row, codes[start : start + BATCH + shingle - 1]


def _units(text: str) -> Array:
    codes = np.frombuffer(text.casefold().encode("utf-32-le", "surrogatepass"), "<u4")
    kinds = _kinds()[codes]
    units = codes[kinds == LETTER]
    return units if len(units) else codes[kinds == SIGN]


@cache
def _kinds() -> Array:
    """For every code: white space and controls, punctuation and symbols, or all others, which count as letters."""
    kinds = np.full(0x110000, LETTER, np.uint8)
    for code in (*range(0x20000), *range(0xE0000, 0xE0100)):  # ideographs and private ones lie between and behind
        kind = unicodedata.category(chr(code))
        if kind[0] in "PZS" or kind in ("Cc", "Cf"):
            kinds[code] = SIGN if kind[0] in "PS" else BLANK
    return kinds


def _hash(rows: list[int], pieces: list[Array], how: Near) -> tuple[Array, Array]:
    codes = np.concatenate(pieces).astype(np.uint64)
    lengths = np.array([len(piece) for piece in pieces])
    if (wide := codes >= WIDE).any():
        times = 1 + 2 * wide.astype(np.int64)
        lengths = np.add.reduceat(times, np.cumsum(lengths) - lengths)
        codes = np.repeat(codes, times)
    count = len(codes) - how.shingle + 1
    hashes = codes[:count].copy()
    for n in range(1, how.shingle):
        hashes *= ODD
        hashes += codes[n : n + count]
    valid = np.ones(len(codes), bool)
    valid[np.subtract.outer(np.cumsum(lengths), np.arange(1, how.shingle))] = False
    valid = valid[:count]
    return np.repeat(np.array(rows), lengths)[:count][valid], chance.mix(hashes[valid] + chance.bits(how.seed))


def _fill(rows: Array) -> None:
    """Give every empty bin the number of the first bin, in its own order, that is not empty."""
    empty = rows == EMPTY
    row, column = np.nonzero(empty)
    order = _orders(rows.shape[1])
    for n in range(rows.shape[1]):
        if not len(row):
            return
        source = order[column, n]
        there = ~empty[row, source]
        rows[row[there], column[there]] = rows[row[there], source[there]]
        row, column = row[~there], column[~there]


@cache
def _orders(bins: int) -> Array:
    """For each bin an order of all bins."""
    drawn = chance.mix(np.arange(1, bins * bins + 1, dtype=np.uint64) * ODD).reshape(bins, bins)
    return np.argsort(drawn, axis=1, kind="stable")


def shingles(text: str, how: Near) -> Array:
    return np.unique(np.concatenate([hashes for _, hashes in _hashed([text], how)]))


def overlap(first: Array, second: Array) -> float:
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared)
