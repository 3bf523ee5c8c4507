"""Filling: what probes of models that fill masks have in common, which read running text in windows end to end.

window 4      0 1 2 3 | 4 5 6 7 | 8          the last one sees what stands before it, of which nothing is scored again
                          5 6 7 | 8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from ordsmed.base.errors import RecipeError
from ordsmed.measure.likelihood import drawn, running
from ordsmed.measure.likelihood.documents import documents
from ordsmed.measure.likelihood.items import Ints, Item, Scorer
from ordsmed.measure.likelihood.probe import Example, PairedExample, Record
from ordsmed.measure.likelihood.windows import paired_windows

LONGEST = 128  # tokens of a window where none is asked for


class FillingProbe:
    """Each token is scored once, with what stands on both sides of it in its window."""

    files: tuple[str, ...]
    key: str
    window: int
    best: ClassVar[bool] = False
    by_windows: ClassVar[bool] = True  # of tokens: they are the same of models whose texts are cut alike
    prefers: ClassVar[tuple[str, ...]] = ("masked",)
    ways: ClassVar[tuple[str, ...]] = ("masked",)
    LEAST: ClassVar[dict[str, int]] = {"window": 0}

    def __post_init__(self) -> None:
        for name, least in self.LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted {least} or more")

    def fits(self, scorer: Scorer, place: str) -> str:
        """How texts are cut, in a line."""
        if scorer.way not in self.ways:
            wrong = f"is read the way `{scorer.way}`, by which no masks are filled"
            text = scorer.chained or scorer.by_line
            remedy = "`perplexity` is for it" if text else "`minimal_pairs` asks models of every family"
            raise RecipeError(place, wrong, " or ".join(self.ways), remedy)
        if self.window > scorer.room:
            raise RecipeError(
                f"{place}.window", f"found {self.window:,}", f"at most {scorer.room:,}, the model's positions"
            )
        return f"windows of {self._size(scorer):,} tokens, end to end"

    def windows(self, scorer: Scorer) -> Iterator[Example]:
        """Of all documents, each one item; of a store its words and bytes are not known."""
        size = self._size(scorer)
        if drawn.is_store(self.files):
            for ids in drawn.document_ids(scorer, self.files):
                for item in end_to_end([ids], size):
                    yield Example((item,), [0, 0, 1, scorer.tokenizer.vocabulary, 0, 0])
            return
        for place, blocks in documents(self.files, self.key):
            yield from running.cut(scorer, lambda ids: end_to_end(ids, size), place, blocks)

    def as_line(self, record: Record) -> dict[str, Any]:
        """Of a window, for --each."""
        return {"nats": record[-2], "targets": record[-1]}

    def compared(self, records: list[Record]) -> list[PairedExample]:
        """What two models of one tokenizer are compared by: windows of the same tokens."""
        return paired_windows(records)

    def _size(self, scorer: Scorer) -> int:
        return self.window or min(scorer.room, LONGEST)


def end_to_end(blocks: Iterable[Ints], size: int) -> Iterator[Item]:
    """Windows of this size, the last one too where a text has so many tokens."""
    buffer = np.zeros(0, np.int64)
    for block in blocks:
        buffer = np.concatenate([buffer, block])
        while len(buffer) >= 2 * size:
            yield Item(buffer[:size])
            buffer = buffer[size:]
    if len(buffer):
        yield Item(buffer[:size])
    if len(buffer) > size:
        yield Item(buffer[-size:], first=2 * size - len(buffer))
