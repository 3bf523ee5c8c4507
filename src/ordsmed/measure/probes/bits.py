"""Bits per byte of any text, a measure that compares models with different tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import Example, Finding
from ordsmed.measure.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Bits(WindowedProbe, Choice):
    """Bits per byte of plain text (a file is a document) or JSON lines (a line is a document)."""

    files: tuple[str, ...] = ()
    """text files or JSON lines (.json, .jsonl), compressed or not"""
    way: str = ""
    """how the model is read: causal; for ELMo mean, forward or backward"""
    key: str = "text"
    """key of the text in JSON lines"""
    overlap: int = 0
    """tokens between the starts of windows; 0: consecutive windows"""
    window: int = 0
    """tokens per window; 0: the model's positions, at most 1,024"""

    RECORD: ClassVar = running.TextWindow

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        yield from running.examples(scorer, self.cutting(scorer), self.files, self.key)

    def finding(self, records: list[running.TextWindow]) -> Finding:
        return running.finding(records, first="bits_per_byte")
