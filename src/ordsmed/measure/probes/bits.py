"""Bits: how many bits a byte of any text costs, which compares models whatever their tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ordsmed.base.menu import Choice
from ordsmed.measure.likelihood import running
from ordsmed.measure.likelihood.items import Scorer
from ordsmed.measure.likelihood.probe import Example, Finding, Record
from ordsmed.measure.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Bits(WindowedProbe, Choice):
    """Of plain text, a file a document, or of JSON lines, a line a document."""

    files: tuple[str, ...] = ()
    """texts, packed or plain, or JSON lines (.json, .jsonl)"""
    way: str = ""
    """how the model is read: causal; of an ELMo mean, forward, backward"""
    key: str = "text"
    """of JSON lines: of each line's text"""
    overlap: int = 0
    """tokens that each window goes further; 0: windows end to end"""
    window: int = 0
    """tokens; 0: the model's positions, at most 1,024"""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        yield from running.examples(scorer, self.cutting(scorer), self.files, self.key)

    def finding(self, records: list[Record]) -> Finding:
        return running.finding(records, first="bits_per_byte")
