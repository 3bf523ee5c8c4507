"""MinHash signatures: compare each text with very many others, and define near duplicates.

A text is case-folded and reduced to its letters, digits and marks, so copies that differ only in white space and
punctuation are equal. (A text without letters is reduced to its characters other than white space.) A shingle is a run
of `shingle` units. A letter is one unit; an ideograph, kana or Hangul syllable is three, so 7 units are 7 letters or 3
ideographs. A text shorter than a shingle is one shingle.

A signature is a one-permutation MinHash: a 64-bit hash of each shingle selects one of `permutations` bins, and each bin
keeps its smallest hash. An empty bin copies the first filled bin in an order of its own. The share of equal bins of two
signatures estimates the Jaccard similarity of their sets of shingles, with a standard error of about sqrt(J (1 - J) /
permutations): 0.04 for J = 0.7 and 128 permutations.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from ordsmed.base import chance

Array = np.ndarray[Any, Any]

SURE = 0.985  # least probability that a pair at the threshold shares a bucket
ERRORS = 2  # estimates within this many standard errors of the threshold are uncertain
BATCH = 1 << 16  # characters hashed at once, so that they stay in the processor's cache
EMPTY = 0xFFFFFFFF  # a bin without a shingle
WIDE = 0x2E80  # the first code of East Asian writing
ODD = np.uint64(chance.GOLDEN)
VERSION = 2  # of the signatures; those of other versions are computed again
BLANK, SIGN, LETTER = range(3)


@dataclass(frozen=True)
class Near:
    """Settings for near duplicates, of which only the better document is kept."""

    LATER_ADDED: ClassVar[tuple[str, ...]] = ("sources", "into")

    threshold: float = 0.7
    "Jaccard similarity of the sets of shingles; of a pair with at least this value one document is dropped"
    shingle: int = 7
    "letters, digits and marks of a shingle; an ideograph counts as three"
    permutations: int = 128
    "numbers in a signature; four times as many halve the error of the estimate"
    keep: Literal["longest", "first"] = "longest"
    "which document of a group is kept"
    sources: int = 1
    "documents are dropped unless at least this many sources contain them or a near duplicate"
    into: str = ""
    "key in a document's meta for the number of sources that contain it or a near duplicate; empty: not stored"
    seed: int = 0
    "seed of the hashes"

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
        """Return the number of bands and of rows per band: the most rows that find a pair at the threshold."""
        for rows in range(self.permutations, 1, -1):
            bands = self.permutations // rows
            if 1 - (1 - self.threshold**rows) ** bands >= SURE:
                return bands, rows
        return self.permutations, 1

    def doubt(self) -> float:
        """Return the distance from the threshold within which an estimate is uncertain."""
        return float(ERRORS * (self.threshold * (1 - self.threshold) / self.permutations) ** 0.5)


def signatures(texts: Sequence[str], settings: Near) -> Array:
    """Return a row of `permutations` '<u4' for each text. It does not depend on the machine or on the other texts."""
    least = np.full(len(texts) * settings.permutations, EMPTY, "<u4")
    bins = np.uint64(settings.permutations)
    for rows, hashes in _hashed(texts, settings):
        location = rows * settings.permutations + ((hashes >> np.uint64(32)) * bins >> np.uint64(32)).view(np.int64)
        np.minimum.at(least, location, hashes.astype("<u4"))
    rows_of_bins = least.reshape(len(texts), settings.permutations)
    for start in range(0, len(rows_of_bins), 8192):
        _fill(rows_of_bins[start : start + 8192])
    return rows_of_bins


def jaccard(first: str, second: str, settings: Near) -> float:
    return overlap(shingles(first, settings), shingles(second, settings))


def _hashed(texts: Iterable[str], settings: Near) -> Iterator[tuple[Array, Array]]:
    """Yield the shingles of many texts in batches: the index of their text, and their hashes."""
    rows, pieces, length = list[int](), list[Array](), 0
    for row, piece in _pieces(texts, settings.shingle):
        rows.append(row)
        pieces.append(piece)
        length += len(piece)
        if length >= BATCH:
            yield _hash(rows, pieces, settings)
            rows, pieces, length = [], [], 0
    if pieces:
        yield _hash(rows, pieces, settings)


def _pieces(texts: Iterable[str], shingle: int) -> Iterator[tuple[int, Array]]:
    """Yield codes of letters: long texts in pieces that overlap by a shingle, short ones padded to a shingle."""
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
    """Return the class of every code point: blank (white space, controls), sign (punctuation, symbols) or letter."""
    kinds = np.full(0x110000, LETTER, np.uint8)
    for code in (*range(0x20000), *range(0xE0000, 0xE0100)):  # other ranges are ideographs and private use
        kind = unicodedata.category(chr(code))
        if kind[0] in "PZS" or kind in ("Cc", "Cf"):
            kinds[code] = SIGN if kind[0] in "PS" else BLANK
    return kinds


def _hash(rows: list[int], pieces: list[Array], settings: Near) -> tuple[Array, Array]:
    codes = np.concatenate(pieces).astype(np.uint64)
    lengths = np.array([len(piece) for piece in pieces])
    if (above_bmp := codes >= WIDE).any():
        times = 1 + 2 * above_bmp.astype(np.int64)
        lengths = np.add.reduceat(times, np.cumsum(lengths) - lengths)
        codes = np.repeat(codes, times)
    count = len(codes) - settings.shingle + 1
    hashes = codes[:count].copy()
    for n in range(1, settings.shingle):
        hashes *= ODD
        hashes += codes[n : n + count]
    valid = np.ones(len(codes), bool)
    valid[np.subtract.outer(np.cumsum(lengths), np.arange(1, settings.shingle))] = False
    valid = valid[:count]
    return np.repeat(np.array(rows), lengths)[:count][valid], chance.mix(hashes[valid] + chance.bits(settings.seed))


def _fill(rows: Array) -> None:
    """Give every empty bin the number of the first filled bin in its own order."""
    empty = rows == EMPTY
    row, column = np.nonzero(empty)
    order = _orders(rows.shape[1])
    for n in range(rows.shape[1]):
        if not len(row):
            return
        source = order[column, n]
        filled = ~empty[row, source]
        rows[row[filled], column[filled]] = rows[row[filled], source[filled]]
        row, column = row[~filled], column[~filled]


@cache
def _orders(bins: int) -> Array:
    drawn = chance.mix(np.arange(1, bins * bins + 1, dtype=np.uint64) * ODD).reshape(bins, bins)
    return np.argsort(drawn, axis=1, kind="stable")


def shingles(text: str, settings: Near) -> Array:
    return np.unique(np.concatenate([hashes for _, hashes in _hashed([text], settings)]))


def overlap(first: Array, second: Array) -> float:
    shared = len(np.intersect1d(first, second, assume_unique=True))
    return shared / (len(first) + len(second) - shared)
