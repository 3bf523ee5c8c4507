"""Perplexity of any text: whole, or of a large corpus in windows drawn at random, the same ones every time.

files, whole             each document behind the sign that texts begin with, every token scored once
iterations x batch       so many windows of running text from a store or JSON lines, as in pretraining
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from ordsmed.likelihood import drawn, windows
from ordsmed.likelihood.documents import documents
from ordsmed.likelihood.items import Scorer
from ordsmed.likelihood.probe import Example, Finding, Record
from ordsmed.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Settings(WindowedProbe):
    """Per token, and where the text is known per word and byte."""

    files: tuple[str, ...] = ()
    """texts, JSON lines, or the folder of an `encode`"""
    way: str = ""
    """how the model is read: causal"""
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
        if not self.iterations:
            return str(cutting)
        return f"{self.iterations * self.batch:,} windows of {cutting.window:,} tokens, drawn with seed {self.seed}"

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        vocabulary = scorer.tokenizer.vocabulary
        if self.iterations or drawn.is_store(self.files):
            count = self.iterations * self.batch or None
            for item in drawn.items(scorer, self.files, self.key, cutting.window, count, self.seed):
                yield Example((item,), [0, 0, 1, vocabulary])
            return
        for place, text in documents(self.files, self.key):
            ids = windows.framed(scorer, text)
            yield from windows.examples(cutting, ids, place, len(text.split()), len(text.encode()), 1, vocabulary)

    def finding(self, records: list[Record]) -> Finding:
        words, size, texts, vocabulary = windows.sums(records)[:4]
        units = {"word": words, "byte": size} if size else {}
        result = windows.perplexities(records, units, int(vocabulary / texts))
        counts = {"documents": int(texts), "words": int(words), "bytes": int(size)} if size else {}
        return replace(result, facts={**result.facts, **counts, "windows": len(records)})
