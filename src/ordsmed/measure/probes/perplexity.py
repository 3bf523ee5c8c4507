"""Perplexity of any text: of whole files, or of windows sampled from a large corpus with a fixed seed.

files, whole             each document after the start token, every token scored once
iterations x batch       windows of running text from a store or JSON lines, as in pretraining
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.errors import RecipeError
from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running, sampled_windows
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import Example, Finding
from ordsmed.measure.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Perplexity(WindowedProbe, Choice):
    """Perplexity per token and, if the text is known, per word and byte."""

    files: tuple[str, ...] = ()
    """text files, JSON lines, or a folder written by `encode`"""
    way: str = ""
    """how the model is read: causal; for ELMo mean, forward or backward"""
    key: str = "text"
    """key of the text in JSON lines"""
    overlap: int = 0
    """tokens between the starts of windows; 0: consecutive windows"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 1,024"""
    iterations: int = 0
    """batches of windows to sample; 0: the whole text; elsewhere eval_iters"""
    batch: int = 16
    """windows per sampled batch; elsewhere eval_batch_size"""
    seed: int = 0
    """seed of the sampled windows"""

    RECORD: ClassVar = running.TextWindow
    LEAST: ClassVar[dict[str, int]] = {**WindowedProbe.LEAST, "iterations": 0, "batch": 1}

    def fits(self, scorer: Scorer, location: str) -> str:
        cutting = self.cutting(scorer, location)
        if scorer.by_line and (self.iterations or sampled_windows.is_store(self.files)):
            wrong = f"is read the way `{scorer.way}`, line by line, so that no windows can be sampled"
            raise RecipeError(location, wrong, "text files or JSON lines, without iterations")
        if not self.iterations:
            return str(cutting)
        return f"{self.iterations * self.batch:,} windows of {cutting.window:,} tokens, sampled with seed {self.seed}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        if not (self.iterations or sampled_windows.is_store(self.files)):
            yield from running.examples(scorer, cutting, self.files, self.key)
            return
        count = self.iterations * self.batch or None
        for item in sampled_windows.items(scorer, self.files, self.key, cutting.window, count, self.seed):
            yield Example((item,), running.document_start(scorer))

    def finding(self, records: list[running.TextWindow]) -> Finding:
        return running.finding(records)
