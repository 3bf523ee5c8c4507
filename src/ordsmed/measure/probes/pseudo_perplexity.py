"""Pseudo-perplexity: how well a masked model guesses each token of a text from all others (Salazar et al. 2020).

No perplexity: the scores of tokens that each see all others multiply to no probability, and are far higher. Models of
one tokenizer may be compared by it, a masked one with a causal one not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.filling import FillingProbe
from ordsmed.measure.likelihood.items import Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding, Record


@dataclass(frozen=True)
class PseudoPerplexity(FillingProbe, Choice):
    """Per token, and where the text is known per word and byte; a pass for every token."""

    files: tuple[str, ...] = ()
    """texts, packed or plain, JSON lines, or the folder of an `encode`"""
    way: str = ""
    """masked (each token hidden by itself), word (and its word's pieces right of it)"""
    key: str = "text"
    """of JSON lines: of each line's text"""
    window: int = 0
    """tokens that are seen at once; 0: the model's positions, at most 128"""

    ways: ClassVar[tuple[str, ...]] = ("masked", "word")

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        yield from self.windows(scorer)

    def record(self, example: Example, scores: list[Scores]) -> Record:
        return [*example.about, -scores[0].total, len(scores[0].logs)]

    def finding(self, records: list[Record]) -> Finding:
        return running.finding(records, named="pseudo_{}")
