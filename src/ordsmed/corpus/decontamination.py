"""Decontamination: hashes of runs of words in evaluation data, and whether a document contains any of them.

    evaluation files -> entries -> words -> hashes of every 13 words in a row -> HeldOut, sorted 64-bit numbers
    document -> words -> hashes of every 13 words in a row -> the first one held out, or None

A word is a case-folded run of letters, digits and marks, or a single ideograph or kana. Scripts such as Thai put no
spaces between words: there a phrase counts as one word. An entry with fewer words than a run, but at least `shortest`,
is matched as a whole. A shorter one is left out, and counted if it has at least five words.

Entries depend on the name of the file (.gz, .bz2, .xz and .zst are unpacked first):

    .json, .jsonl, .ndjson     every string at any depth (not keys)
    .tsv, .csv                 every field; quotes count only in .csv
    .conllu, .conll, .iob      the sentences: `# text =` if given, else the forms
    anything else              the lines
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ordsmed.base import chance
from ordsmed.base.errors import DataError
from ordsmed.base.files import mapped, writing
from ordsmed.text import read
from ordsmed.text.labelled.questions import json_values
from ordsmed.text.labelled.tables import LONGEST_FIELD

Array = np.ndarray[Any, Any]

SHORTEST = 8  # least words of an entry that is matched as a whole
TOLD = 5  # least words of a counted entry; names, labels and numbers are shorter
BLOCK = 1 << 18  # characters split into words at once
GATHER = 1 << 20  # hashes collected before duplicates are removed
MARK = 0x6F72647331  # first number of a saved file, for its format and version
ODD = np.uint64(chance.GOLDEN)
INVERSE = np.uint64(pow(int(ODD), -1, 1 << 64))
IDEOGRAPHS = [(0x2E80, 0x3000), (0x3005, 0x3008), (0x3021, 0x302A), (0x3040, 0x3100), (0x31F0, 0x3200)]
IDEOGRAPHS += [(0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0xFF66, 0xFFA0)]
PLANES = 0x20000  # from here on nearly all codes are ideographs


@dataclass(frozen=True)
class Decontaminate:
    """Settings for dropping documents that contain evaluation data."""

    paths: str | list[str]
    "evaluation files, folders or patterns: JSON, JSON lines, TSV, CSV, CoNLL or text, also packed"
    words: int = 13
    "a document is dropped if it shares this many words in a row with an evaluation file"
    shortest: int = SHORTEST
    "least number of words of an entry that is shorter than `words` and matched as a whole"

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("paths: found none; wanted evaluation files")
        if not 1 <= self.shortest <= self.words <= 255:
            problem = f"shortest {self.shortest} and words {self.words}"
            raise ValueError(f"words: found {problem}; wanted 1 <= shortest <= words <= 255")

    def grams(self) -> HeldOut:
        return grams(self.paths, self.words, self.shortest)


@dataclass(frozen=True)
class Hit:
    """The words that a document shares with evaluation data."""

    words: str
    "the words, case-folded, with the text between them"
    number: int
    "number of words before them in the document"


@dataclass(frozen=True)
class HeldOut:
    """Hashes of runs of words that no document may contain."""

    hashes: Array
    "sorted '<u8'"
    words: int
    "words in a run"
    shortest: int
    "least words of an entry that is matched as a whole"
    entries: int = 0
    "strings, fields, sentences or lines of five words or more in the evaluation files"
    short: int = 0
    "how many of these were left out because they are too short"

    def hits(self, text: str) -> Hit | None:
        return self.search([text])[0]

    def search(self, texts: Sequence[str]) -> list[Hit | None]:
        """Return `hits` for many texts. This is much faster for short texts, and best with about 100,000 characters."""
        hits: list[Hit | None] = [None] * len(texts)
        if not len(self.hashes):
            return hits
        text, hashed, owner, starts, ends = _joined([text.casefold() for text in texts])
        for length, runs in _runs(hashed, self.shortest, self.words):
            likely = np.flatnonzero(self._sieve[(runs >> self._shift).view(np.int64)])
            nearest = np.minimum(np.searchsorted(self.hashes, runs[likely]), len(self.hashes) - 1)
            at = likely[self.hashes[nearest] == runs[likely]]
            at = at[owner[at] == owner[at + length - 1]]
            for document, first in zip(*np.unique(owner[at], return_index=True), strict=True):
                start, earlier = at[first], hits[document]
                number = int(start - np.searchsorted(owner, document))
                if earlier is None or number < earlier.number:
                    hits[document] = Hit(text[starts[start] : ends[start + length - 1]], number)
        return hits

    def save(self, path: Path) -> None:
        """Write a .npy of '<u8': five numbers, then the hashes."""
        head = [MARK, self.words, self.shortest, self.entries, self.short]
        with writing(path) as file:
            np.save(file, np.concatenate([np.array(head, np.uint64), self.hashes]).astype("<u8"))

    @staticmethod
    def load(path: Path) -> HeldOut:
        """Open a saved file. The hashes are memory-mapped, so that many processes share them."""
        wanted, remedy = "held-out hashes", "compute them again"
        numbers = mapped(path, wanted, remedy)
        if numbers.dtype.str != "<u8" or numbers.ndim != 1 or len(numbers) < 5 or numbers[0] != MARK:
            raise DataError(path, f"other numbers ('{numbers.dtype.str}')", wanted, remedy)
        return HeldOut(numbers[5:], *numbers[1:5].tolist())

    @cached_property
    def _shift(self) -> np.uint64:
        """Number of bits to shift a hash by to get its leading bits, which have 16 to 32 patterns per hash."""
        return np.uint64(64 - min(max(len(self.hashes).bit_length() + 4, 16), 26))

    @cached_property
    def _sieve(self) -> Array:
        """A table of the leading bits that occur. A lookup in it avoids most binary searches."""
        sieve = np.zeros(1 << (64 - int(self._shift)), bool)
        sieve[(self.hashes >> self._shift).astype(np.int64)] = True
        return sieve

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the table, which is quickly computed again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def grams(paths: str | Sequence[str], n: int = 13, shortest: int = SHORTEST) -> HeldOut:
    entries = short = waiting = 0
    hashes = [np.empty(0, "<u8")]
    for batch in _batches(entry for path in read.files(paths) for entry in _entries(path)):
        sizes, gathered = _gathered(batch, n, shortest)
        entries += int((sizes >= TOLD).sum())
        short += int(((sizes >= TOLD) & (sizes < shortest)).sum())
        hashes += gathered
        waiting += sum(map(len, gathered))
        if waiting > max(GATHER, len(hashes[0])):
            hashes, waiting = [np.unique(np.concatenate(hashes))], 0
    return HeldOut(np.unique(np.concatenate(hashes)), n, shortest, entries, short)


def _batches(entries: Iterable[str]) -> Iterator[list[str]]:
    batch, length = list[str](), 0
    for entry in entries:
        batch.append(entry.casefold())
        length += len(entry)
        if length > BLOCK:
            yield batch
            batch, length = [], 0
    yield batch


def _gathered(entries: list[str], longest: int, shortest: int) -> tuple[Array, list[Array]]:
    _, hashed, owner, _, _ = _joined(entries)
    sizes = np.bincount(owner, minlength=len(entries))
    hashes = []
    for length, runs in _runs(hashed, shortest, longest):
        whole = owner[: len(runs)] == owner[length - 1 :]
        if length < longest:
            whole &= sizes[owner[: len(runs)]] == length
        hashes.append(runs[whole])
    return sizes, hashes


# ---- words and runs of words


def _joined(texts: Sequence[str]) -> tuple[str, Array, Array, Array, Array]:
    """Join texts, and return their words: hashes, the text of each, where each begins and ends."""
    hashed, starts, ends = _words(text := "\n".join(texts))
    first = np.cumsum([0] + [len(text) + 1 for text in texts])  # the character at which each text begins
    return text, hashed, np.searchsorted(first, starts, "right") - 1, starts, ends


def _words(text: str) -> tuple[Array, Array, Array]:
    blocks, start = [(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))], 0
    while start < len(text):
        stop = start + BLOCK
        if stop < len(text):
            stop = max(text.rfind(" ", start, stop), text.rfind("\n", start, stop)) + 1 or stop
        hashed, starts, ends = _hash(text[start:stop])
        blocks.append((hashed, starts + start, ends + start))
        start = stop
    hashed, starts, ends = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return hashed, starts, ends


def _hash(text: str) -> tuple[Array, Array, Array]:
    codes = _codes(text)
    kinds = np.zeros(len(codes) + 2, np.uint8)
    kinds[1:-1] = _kinds()[np.minimum(codes, PLANES)]
    letter = kinds == 1
    edges = np.flatnonzero(letter[1:] != letter[:-1])
    starts, ends = edges[::2], edges[1::2]
    if len(single_words := np.flatnonzero(kinds[1:-1] == 2)):
        starts, ends = np.sort(np.append(starts, single_words)), np.sort(np.append(ends, single_words + 1))
    if not len(starts):
        return np.empty(0, np.uint64), starts, ends
    # the sum of value * ODD ** position, divided by ODD ** start, does not depend on the position of the word
    values = _values()[codes & (PLANES - 1)] * _powers(ODD)[: len(codes)] * (kinds[1:-1] > 0)
    return chance.mix(np.add.reduceat(values, starts) * _powers(INVERSE)[starts]), starts, ends


def _codes(text: str) -> Array:
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)


@cache
def _kinds() -> Array:
    """Return the class of every code point: 0 separates words, 1 is part of a word, 2 is a word."""
    kinds = np.array([unicodedata.category(chr(code))[0] in "LNM" for code in range(PLANES)] + [True], np.uint8)
    for start, stop in [*IDEOGRAPHS, (PLANES, PLANES + 1)]:
        kinds[start:stop] *= 2
    return kinds


@cache
def _values() -> Array:
    return chance.mix(np.arange(1, PLANES + 1, dtype=np.uint64))


@cache
def _powers(base: np.uint64) -> Array:
    powers = np.full(BLOCK, base, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _runs(hashed: Array, shortest: int, longest: int) -> Iterator[tuple[int, Array]]:
    runs = np.zeros(len(hashed), np.uint64)
    for length in range(1, min(longest, len(hashed)) + 1):
        count = len(hashed) - length + 1
        runs = runs[:count] * ODD + hashed[length - 1 :]
        if length >= shortest:
            yield length, runs


# ---- evaluation files


def _entries(path: Path) -> Iterator[str]:
    packed = path.suffix.lower() in (".gz", ".bz2", ".xz", ".zst")
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    return _READERS.get(suffix, read.lines)(path)


def _json(path: Path) -> Iterator[str]:
    for _, value in json_values(path, None):
        yield from _strings(value)


def _strings(value: object) -> Iterator[str]:
    waiting: list[object] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(list(value.values()))
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, str):
            yield value


def _tsv(path: Path) -> Iterator[str]:
    for line in read.lines(path):
        yield from line.split("\t")


def _csv(path: Path) -> Iterator[str]:
    csv.field_size_limit(LONGEST_FIELD)  # the limit is global, and tables may have set it
    rows = csv.reader(line + "\n" for line in read.lines(path))
    try:
        for row in rows:
            yield from row
    except csv.Error as error:
        location, remedy = f"{path}:{rows.line_num}", "fix it, or rename it to .tsv or .txt"
        raise DataError(location, f"bad CSV: {error}", "fields of RFC 4180", remedy) from None


def _conll(path: Path) -> Iterator[str]:
    text, forms = "", list[str]()
    for line in read.lines(path):
        if line.startswith("# text ="):
            text = line.removeprefix("# text =")
        elif line and not line.isspace():
            forms += _form(line)
        elif text or forms:
            yield text or "".join(forms)
            text, forms = "", []
    if text or forms:
        yield text or "".join(forms)


def _form(line: str) -> list[str]:
    fields = line.split("\t") if "\t" in line else line.split()
    if len(fields) != 10:
        return [] if line.startswith(("# ", "-DOCSTART-")) else [fields[0], " "]
    return [fields[1]] if "SpaceAfter=No" in fields[9] else [fields[1], " "]


_READERS: dict[str, Callable[[Path], Iterator[str]]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), _json),
    ".tsv": _tsv,
    ".csv": _csv,
    ".conllu": _conll,
    ".conll": _conll,
    ".iob": _conll,
}
