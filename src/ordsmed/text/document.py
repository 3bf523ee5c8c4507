"""A document: its text, where its sentences end, and what else is known of it.

    {"text": "One. Two.\\nThree.", "ends": [4, 9, 16], "id": "...", "meta": {...}}    one line of a corpus folder

A sentence is `text[ends[i-1]:ends[i]]`: it carries the white space before it, so the sentences joined are the text,
and a byte-level tokenizer gets the same pieces from them as from the whole.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Document:
    """One text that belongs together."""

    text: str
    ends: list[int] = field(default_factory=list)
    id: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """The sentences, each with the white space before it; the whole text where none were told apart."""
        starts = [0, *self.ends[:-1]]
        return [self.text[a:b] for a, b in zip(starts, self.ends, strict=True)] if self.ends else [self.text]
