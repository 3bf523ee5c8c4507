"""Perplexity of any text: whole, or of a large corpus in windows drawn at random, the same ones every time.

files, whole             each document behind the sign that texts begin with, every token scored once
iterations x batch       so many windows of running text from a store or JSON lines, as in pretraining
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import drawn, running
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import Example, Finding, Record
from ordsmed.measure.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Perplexity(WindowedProbe, Choice):
    """Per token, and where the text is known per word and byte."""

    files: tuple[str, ...] = ()
    """texts, JSON lines, or the folder of an `encode`"""
    way: str = ""
    """how the model is read: causal; of an ELMo mean, forward, backward"""
    key: str = "text"
    """of JSON lines: of each line's text"""
    overlap: int = 0
    """tokens that each window goes further; 0: windows end to end"""
    window: int = 0
    """tokens; 0: the model's positions, at most 1,024"""
    iterations: int = 0
    """batches of windows drawn at random; 0: the whole text; elsewhere eval_iters"""
    batch: int = 16
    """windows of such a batch; elsewhere eval_batch_size"""
    seed: int = 0
    """of the draws"""

    LEAST: ClassVar[dict[str, int]] = {**WindowedProbe.LEAST, "iterations": 0, "batch": 1}

    def fits(self, scorer: Scorer, place: str) -> str:
        cutting = self.cutting(scorer, place)
        if scorer.by_line and (self.iterations or drawn.is_store(self.files)):
            wrong = f"is read the way `{scorer.way}`, line by line: no windows of running text are drawn for it"
            raise RecipeError(place, wrong, "text files or JSON lines, without iterations")
        if not self.iterations:
            return str(cutting)
        return f"{self.iterations * self.batch:,} windows of {cutting.window:,} tokens, drawn with seed {self.seed}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        if not (self.iterations or drawn.is_store(self.files)):
            yield from running.examples(scorer, cutting, self.files, self.key)
            return
        count = self.iterations * self.batch or None
        for item in drawn.items(scorer, self.files, self.key, cutting.window, count, self.seed):
            yield Example((item,), [0, 0, 1, scorer.tokenizer.vocabulary, 0, 0])

    def finding(self, records: list[Record]) -> Finding:
        return running.finding(records)
