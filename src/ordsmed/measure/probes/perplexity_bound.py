"""Perplexity bound: no less than the perplexity of who writes a text by filling masks, in any order (MDLM, LLaDA).

of a window of L tokens n = 1 ... L are hidden at once, as many of each size as of others, which ones by chance
nats <= mean over the draws of L / n times what the hidden ones cost

What a model was trained for with `diffusion`; of others that fill masks it is a bound too, and a loose one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ordsmed.base import chance
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.filling import FillingProbe
from ordsmed.measure.likelihood.items import Item, Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, Record


@dataclass(frozen=True)
class PerplexityBound(FillingProbe, Choice):
    """Per token, and where the text is known per word and byte; a pass for every draw."""

    files: tuple[str, ...] = ()
    """texts, packed or plain, JSON lines, or the folder of an `encode`"""
    way: str = ""
    """how the model is read: masked"""
    key: str = "text"
    """of JSON lines: of each line's text"""
    window: int = 0
    """tokens that are written together; 0: the model's positions, at most 128"""
    draws: int = 16
    """of each window, with masks of small to large shares; more of them: less noise"""
    seed: int = 0
    """of the draws"""

    LEAST: ClassVar[dict[str, int]] = {**FillingProbe.LEAST, "draws": 1}

    def fits(self, scorer: Scorer, place: str) -> str:
        return f"{super().fits(scorer, place)}, each with {self.draws:,} draws of masks with seed {self.seed}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        for number, example in enumerate(self.windows(scorer)):
            yield replace(example, items=self._drawn(example.items[0], chance.key("bound", self.seed, number)))

    def _drawn(self, window: Item, key: int) -> tuple[Item, ...]:
        """A window with masks, so often; amounts lie evenly from one to all."""
        size, begin = window.asked, float(chance.unit(key, 0))
        result = []
        for draw in range(self.draws):
            amount = int((draw + begin) / self.draws * size) + 1
            order = np.argsort(chance.unit(key, 1 + draw, np.arange(size)), kind="stable")
            result.append(replace(window, hidden=np.sort(order[:amount]) + window.first))
        return tuple(result)

    def record(self, example: Example, scores: list[Scores]) -> Record:
        size = len(example.items[0]) - example.items[0].first
        costs = [-score.total * size / len(score.logs) for score in scores]
        return [*example.about, math.fsum(costs) / len(costs), size]

    def finding(self, records: list[Record]) -> Finding:
        return running.finding(records, named="{}_bound")
