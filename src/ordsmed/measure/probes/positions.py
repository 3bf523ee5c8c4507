"""Positions: bits per byte by position in a long text, and of short texts, which shows the value of context.

document  ->  consecutive windows; for a masked model some tokens are masked  ->  bits per byte at 1-128, 129-256, ...
its first tokens alone                                                        ->  bits per byte of short texts
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ordsmed.base import chance
from ordsmed.base.checks import or_more
from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.documents import documents
from ordsmed.measure.likelihood.items import Ints, Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, PairedExample, Record, ratio_error

LONGEST = 8_192  # default tokens per window
FIRST = 128  # end of the first bin; each bin ends at twice the end of the previous one


@dataclass(frozen=True)
class PositionsRecord(Record):
    """Counts of the text of a window, and nats and scored tokens: of the short text, then of each bin."""

    bytes: int
    tokens: int
    documents: int
    scores: list[tuple[float, int]]

    def to_list(self) -> list[Any]:
        return [self.bytes, self.tokens, self.documents, *itertools.chain.from_iterable(self.scores)]

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> Self:
        size, tokens, documents = values[:3]
        return cls(size, tokens, documents, [*zip(values[3::2], values[4::2], strict=True)])


@dataclass(frozen=True)
class Positions(Choice):
    """Bits per byte in bins of positions; all models with one tokenizer score the same tokens."""

    files: tuple[str, ...] = ()
    """long texts, one document per file, or JSON lines, one document per line; compressed or not"""
    way: str = ""
    """masked, causal; empty: masked if the model supports it"""
    key: str = "text"
    """key of the text in JSON lines"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 8,192"""
    mask_prob: float = 0.15
    """masked models: share of tokens that are masked and scored at once"""
    short: int = 128
    """tokens of a short text: the beginning of each document, scored alone"""

    RECORD: ClassVar = PositionsRecord
    best: ClassVar[bool] = False
    by_windows: ClassVar[bool] = True
    prefers: ClassVar[tuple[str, ...]] = ("masked",)

    def __post_init__(self) -> None:
        or_more(self, window=0, short=2)
        if not 0 < self.mask_prob < 1:
            raise ValueError(f"mask_prob: found {self.mask_prob:g}; wanted a share above 0 and below 1")

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.way not in ("masked", "causal"):
            raise RecipeError(location, f"is read the way `{scorer.way}`", "masked or causal")
        if self.window > scorer.max_tokens:
            limit = f"at most {scorer.max_tokens:,}, the model's positions"
            raise RecipeError(f"{location}.window", f"found {self.window:,}", limit)
        hidden = f", {self.mask_prob:.0%} of them masked at once" if scorer.way == "masked" else ""
        return f"consecutive windows of {self._size(scorer):,} tokens{hidden}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        numbers = itertools.count()

        def windows(blocks: Iterable[Ints]) -> Iterator[Item]:
            remainder = np.zeros(0, np.int64)
            for block in blocks:
                remainder = np.concatenate([remainder, block])
                while len(remainder) >= self._size(scorer):
                    yield self._item(scorer, remainder[: self._size(scorer)], next(numbers))
                    remainder = remainder[self._size(scorer) :]
            if len(remainder) > 1:
                yield self._item(scorer, remainder, next(numbers))

        for location, blocks in documents(self.files, self.key):
            for example in running.cut(scorer, windows, location, blocks):
                window, counts = example.items[0], example.about
                begins = counts.documents and len(window) >= self.short  # the window starts its document
                short = [self._item(scorer, window.pieces[: self.short], next(numbers))] if begins else []
                yield Example((window, *short), (counts.bytes, len(window), counts.documents))

    def _item(self, scorer: Scorer, pieces: Ints, number: int) -> Item:
        """Score all tokens but the first, or for a masked model a random choice that depends on `number`."""
        if scorer.way == "causal":
            return Item(pieces, first=1, sign=False)
        draws = chance.bits(chance.key("positions", number), np.arange(len(pieces)))
        return Item(pieces, hidden=np.sort(np.argsort(draws)[: max(1, round(self.mask_prob * len(pieces)))]))

    def record(self, example: Example, scores: list[Scores]) -> PositionsRecord:
        item = example.items[0]
        positions = np.arange(item.first, len(item)) if item.hidden is None else item.hidden
        bins = np.ceil(np.log2(np.maximum((positions + 1) / FIRST, 1))).astype(int)
        pairs = zip(np.bincount(bins, -scores[0].logs).tolist(), np.bincount(bins).tolist(), strict=True)
        short = (-scores[1].total, len(scores[1].logs)) if scores[1:] else (0.0, 0)
        size, tokens, documents = example.about
        return PositionsRecord(size, tokens, documents, [short, *pairs])

    def finding(self, records: list[PositionsRecord]) -> Finding:
        longest = max(len(record.scores) for record in records)
        table = np.asarray([[*record.scores, *[(0.0, 0)] * (longest - len(record.scores))] for record in records])
        nats, targets = table[:, :, 0], table[:, :, 1]
        size, tokens = sum(record.bytes for record in records), sum(record.tokens for record in records)
        per_byte = math.log(2) * size / tokens  # converts nats per token to bits per byte
        facts, errors = dict[str, Any](), dict[str, float]()
        for number in np.flatnonzero(targets.sum(0)).tolist():
            name, has = f"bits_per_byte_{_name(number - 1)}", targets[:, number] > 0
            facts[name] = nats[:, number].sum() / targets[:, number].sum() / per_byte
            errors[name] = ratio_error(nats[has, number].tolist(), targets[has, number].tolist()) / per_byte
        facts |= {
            "documents": sum(record.documents for record in records),
            "bytes": size,
            "scored": int(targets[:, 1:].sum()),
        }
        return Finding(facts, errors)

    def as_line(self, record: PositionsRecord) -> dict[str, Any]:
        return {_name(number): nats for number, (nats, targets) in enumerate(record.scores[1:]) if targets}

    def compared(self, records: list[PositionsRecord]) -> list[PairedExample]:
        sums = [tuple(map(sum, zip(*record.scores[1:], strict=True))) for record in records]
        return [
            PairedExample(f"{number}:{targets}", "", {"nats_per_token": nats}, targets)
            for number, (nats, targets) in enumerate(sums)
        ]

    def _size(self, scorer: Scorer) -> int:
        return self.window or min(scorer.max_tokens, LONGEST)


def _name(number: int) -> str:
    if number < 0:
        return "short"
    return f"{FIRST * 2 ** (number - 1) + 1 if number else 1}_to_{FIRST * 2**number}"
