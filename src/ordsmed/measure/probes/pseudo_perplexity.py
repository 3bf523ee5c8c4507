"""Pseudo-perplexity: how well a masked model predicts each token of a text from all others (Salazar et al. 2020).

It is not a perplexity, because these scores do not multiply to a probability and are much higher. Masked models with
the same tokenizer can be compared by it, but not a masked model with a causal one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.filling import FillingProbe
from ordsmed.measure.likelihood.items import Scorer, Scores
from ordsmed.measure.likelihood.probe import Example, Finding
from ordsmed.measure.likelihood.windows import with_scores


@dataclass(frozen=True)
class PseudoPerplexity(FillingProbe, Choice):
    """Pseudo-perplexity per token and, if the text is known, per word and byte; one pass per token."""

    files: tuple[str, ...] = ()
    """text files, JSON lines, compressed or not, or a folder written by `encode`"""
    way: str = ""
    """masked (one token at a time), word (with the later tokens of its word)"""
    key: str = "text"
    """key of the text in JSON lines"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 128"""

    ways: ClassVar[tuple[str, ...]] = ("masked", "word")

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        yield from self.windows(scorer)

    def record(self, example: Example, scores: list[Scores]) -> running.TextWindow:
        return with_scores(example.about, scores)

    def finding(self, records: list[running.TextWindow]) -> Finding:
        return running.finding(records, named="pseudo_{}")
