"""Bits: how many bits a byte of any text costs, which compares models whatever their tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ordsmed.likelihood import windows
from ordsmed.likelihood.documents import documents
from ordsmed.likelihood.items import Scorer
from ordsmed.likelihood.probe import Example, Finding, Record
from ordsmed.likelihood.windows import WindowedProbe


@dataclass(frozen=True)
class Settings(WindowedProbe):
    """Of plain text, a file a document, or of JSON lines, a line a document."""

    files: tuple[str, ...] = ()
    """texts, packed or plain, or JSON lines (.json, .jsonl)"""
    way: str = ""
    """how the model is read: causal"""
    key: str = "text"
    """of JSON lines: of each line's text"""
    overlap: int = 0
    """tokens that each window goes further; 0: windows end to end"""
    window: int = 0
    """tokens; 0: the model's positions, at most 1,024"""

    def examples(self, scorer: Scorer) -> Iterator[Example]:
        cutting = self.cutting(scorer)
        for place, text in documents(self.files, self.key):
            ids = windows.framed(scorer, text)
            words, size = len(text.split()), len(text.encode())
            yield from windows.examples(cutting, ids, place, words, size, 1, scorer.tokenizer.vocabulary)

    def finding(self, records: list[Record]) -> Finding:
        words, size, texts, vocabulary = windows.sums(records)[:4]
        result = windows.perplexities(records, {"byte": size, "word": words}, int(vocabulary / texts))
        counts = {"documents": int(texts), "words": int(words), "bytes": int(size), "windows": len(records)}
        facts = {"bits_per_byte": result.facts["bits_per_byte"], **result.facts, **counts}
        return replace(result, facts=facts)
