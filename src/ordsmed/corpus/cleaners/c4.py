"""The rules of C4 (Raffel et al. 2020): remove lines that are not sentences, drop documents that are not prose.

    "Home\\nThe fire began at noon and was out by four.\\nWe use cookies."  ->  the second line
    "{ color: red }", "Lorem ipsum dolor sit amet.", four sentences left    ->  dropped

Decisions and texts are those of datatrove's C4QualityFilter, without its list of bad words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.corpus.published_rules import PublishedRules, count_sentences, words
from ordsmed.text.read import tally

_CITATION = re.compile(r"\[(?:\d*|edit|citation needed)\]")
_ENDS = (".", "?", "!", '"', "'")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


@dataclass(frozen=True)
class C4(PublishedRules, Choice):
    """Keeps lines that are sentences, and documents with enough of them."""

    ended_lines: bool = True
    "keep only lines that end in a full stop, question mark, exclamation mark or quotation mark"
    min_line_words: int = 3
    "least words of a line; shorter lines are removed"
    longest_word: int = 1000
    "characters; a line with a longer word is removed"
    citations: bool = False
    "keep marks such as [12] and [edit]"
    braces: bool = False
    "keep documents with {"
    sentences: float = 5
    "least number of remaining sentences"

    LEAST: ClassVar[frozenset[str]] = frozenset({"sentences"})
    RULES: ClassVar[tuple[str, ...]] = ("sentences",)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, min_line_words=0, longest_word=1)

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        cleaned = self.prepared(text)
        for line in cleaned.split("\n"):
            broken = "lorem ipsum" if "lorem ipsum" in line.lower() else "braces" if self._has_brace(line) else ""
            if broken:
                tally().left_out[f"c4: {broken}"] += 1
                return None
        return self.bounded(cleaned, meta)

    def prepared(self, text: str) -> str:
        return "\n".join(line for raw in text.splitlines() if (line := self._line(raw))).strip()

    def measures(self, text: str, language: str) -> Iterator[tuple[str, float]]:
        yield "sentences", sum(count_sentences(words(line)) for line in text.split("\n"))

    def _has_brace(self, line: str) -> bool:
        return "{" in line and not self.braces

    def _line(self, raw: str) -> str:
        raw = raw.strip()
        parts = raw.split()
        line = raw if self.citations else _CITATION.sub("", raw)
        if any(len(part) > self.longest_word for part in parts) or len(parts) < self.min_line_words:
            return ""
        if self.ended_lines and (not line.endswith(_ENDS) or line.endswith("...")):
            return ""
        low = line.lower()
        is_policy = (
            any(policy in low for policy in _POLICIES) and "lorem ipsum" not in low and not self._has_brace(line)
        )
        return "" if ("javascript" in low and "lorem ipsum" not in low) or is_policy else line
