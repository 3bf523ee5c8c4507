"""Perplexity bound: an upper bound on a masked diffusion model's perplexity (MDLM, LLaDA).

In a window of L tokens, n random tokens are masked at once; every n from 1 to L has the same probability. The bound on
the nats of the window is the mean, over the draws, of L / n times the nats of the masked tokens.

A model trained with `diffusion` optimizes this bound. For other masked models it holds too, but it is loose.
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
from ordsmed.measure.likelihood.probe import Example, Finding


@dataclass(frozen=True)
class PerplexityBound(FillingProbe, Choice):
    """Bound per token and, if the text is known, per word and byte; one pass per draw."""

    files: tuple[str, ...] = ()
    """text files, JSON lines, compressed or not, or a folder written by `encode`"""
    way: str = ""
    """how the model is read: masked"""
    key: str = "text"
    """key of the text in JSON lines"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 128"""
    draws: int = 16
    """masks per window, from few to many masked tokens; more draws reduce the noise"""
    seed: int = 0
    """seed of the masks"""

    LEAST: ClassVar[dict[str, int]] = {**FillingProbe.LEAST, "draws": 1}

    def fits(self, scorer: Scorer, location: str) -> str:
        return f"{super().fits(scorer, location)}, each with {self.draws:,} draws of masks with seed {self.seed}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        for number, example in enumerate(self.windows(scorer)):
            yield replace(example, items=self._masked(example.items[0], chance.key("bound", self.seed, number)))

    def _masked(self, window: Item, key: int) -> tuple[Item, ...]:
        """Return `draws` masked copies of a window, with mask counts spread evenly from one to all tokens."""
        size, begin = window.scored_count, float(chance.unit(key, 0))
        result = []
        for draw in range(self.draws):
            amount = int((draw + begin) / self.draws * size) + 1
            order = np.argsort(chance.unit(key, 1 + draw, np.arange(size)), kind="stable")
            result.append(replace(window, hidden=np.sort(order[:amount]) + window.first))
        return tuple(result)

    def record(self, example: Example, scores: list[Scores]) -> running.TextWindow:
        size = len(example.items[0]) - example.items[0].first
        costs = [-score.total * size / len(score.logs) for score in scores]
        return replace(example.about, nats=math.fsum(costs) / len(costs), targets=size)

    def finding(self, records: list[running.TextWindow]) -> Finding:
        return running.finding(records, named="{}_bound")
