"""A document: a text, the offsets at which its sentences end, its id and its metadata.

    {"text": "One. Two.\\nThree.", "ends": [4, 9, 16], "id": "...", "meta": {...}}    one line of a corpus folder

Sentence `i` is `text[ends[i-1]:ends[i]]`. It includes the white space before it, so the sentences joined are the text,
and a byte-level tokenizer cuts them into the same pieces as the whole text.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Document:
    text: str
    ends: list[int] = field(default_factory=list)
    id: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Return the sentences, each with the white space before it, or the whole text if it has not been split."""
        starts = [0, *self.ends[:-1]]
        return [self.text[a:b] for a, b in zip(starts, self.ends, strict=True)] if self.ends else [self.text]
