"""Base class of probes for masked models, which read running text in consecutive windows.

window 4      0 1 2 3 | 4 5 6 7 | 8          the last window is extended to the left; those tokens are not scored again
                          5 6 7 | 8
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import numpy as np

from ordsmed.base.errors import RecipeError
from ordsmed.measure.likelihood import running, sampled_windows
from ordsmed.measure.likelihood.documents import documents
from ordsmed.measure.likelihood.items import Ints, Item, Scorer
from ordsmed.measure.likelihood.probe import Example
from ordsmed.measure.likelihood.windows import WindowProbe

LONGEST = 128  # default tokens per window


class FillingProbe(WindowProbe):
    """Probe that scores each token once, from both sides of its window."""

    files: tuple[str, ...]
    key: str
    prefers: ClassVar[tuple[str, ...]] = ("masked",)
    ways: ClassVar[tuple[str, ...]] = ("masked",)
    RECORD: ClassVar = running.TextWindow

    def fits(self, scorer: Scorer, location: str) -> str:
        if scorer.way not in self.ways:
            wrong = f"is read the way `{scorer.way}`, which fills no masks"
            text = scorer.chained or scorer.by_line
            remedy = "use `perplexity`" if text else "`minimal_pairs` works with models of every family"
            raise RecipeError(location, wrong, " or ".join(self.ways), remedy)
        if self.window > scorer.max_tokens:
            raise RecipeError(
                f"{location}.window", f"found {self.window:,}", f"at most {scorer.max_tokens:,}, the model's positions"
            )
        return f"consecutive windows of {self._size(scorer):,} tokens"

    def windows(self, scorer: Scorer) -> Iterator[Example]:
        """Yield the windows of all documents; the words and bytes of a store are unknown, so they are 0."""
        size = self._size(scorer)
        if sampled_windows.is_store(self.files):
            for ids in sampled_windows.document_ids(scorer, self.files):
                for item in end_to_end([ids], size):
                    yield Example((item,), running.document_start(scorer))
            return
        for location, blocks in documents(self.files, self.key):
            yield from running.cut(scorer, lambda ids: end_to_end(ids, size), location, blocks)

    def _size(self, scorer: Scorer) -> int:
        return self.window or min(scorer.max_tokens, LONGEST)


def end_to_end(blocks: Iterable[Ints], size: int) -> Iterator[Item]:
    """Yield windows of `size` tokens; the last one is extended to the left to the same size if possible."""
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
