"""Documents by FineWeb's own rules (Penedo et al. 2024): lines that end, short lines, lines that come again, lists.

    "Home\\nNews\\nSport\\nContact\\n..."  ->  dropped: ended lines

Decisions are those of datatrove's FineWebQualityFilter. FineWeb cleans by
`["gopher", { kind = "c4", ended_lines = false }, "fineweb"]`, FineWeb2 by thresholds of each language: `tail = 0.1`
sets them by a sample of the corpus (meta["language"], by the step `language`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.corpus.published import PublishedRules, repeated, stops, words

SHORT = 30  # characters of a short line


@dataclass(frozen=True)
class FineWeb(PublishedRules, Choice):
    """Only documents that keep FineWeb's rules."""

    ended_lines: float = 0.12
    "least share of lines that end as sentences do"
    short_lines: float = 0.67
    "most share of lines of up to 30 characters"
    repeated_line_characters: float = 0.01
    "most share of characters in lines that stood before"
    new_lines: float = 0.3
    "most line ends a word"

    LEAST: ClassVar[frozenset[str]] = frozenset({"ended_lines"})
    RULES: ClassVar[tuple[str, ...]] = ("ended_lines", "short_lines", "repeated_line_characters", "new_lines")

    def measures(self, text: str, language: str) -> Iterator[tuple[str, float]]:
        lines = [line for line in text.split("\n") if line.strip()]
        count = max(len(lines), 1)
        yield "ended_lines", sum(line.endswith(stops()) for line in lines) / count
        yield "short_lines", sum(len(line) <= SHORT for line in lines) / count
        yield "repeated_line_characters", repeated(lines)[1] / max(len(text.replace("\n", "")), 1)
        yield "new_lines", text.count("\n") / max(len(words(text)), 1)
