"""FineWeb's own rules for documents (Penedo et al. 2024): ended lines, short lines, repeated lines, lists.

    "Home\\nNews\\nSport\\nContact\\n..."  ->  dropped: ended lines

Decisions are those of datatrove's FineWebQualityFilter. FineWeb cleans with `["gopher", { kind = "c4", ended_lines =
false }, "fineweb"]`. FineWeb2 uses thresholds per language: `tail = 0.1` sets them on a sample of the corpus
(meta["language"] comes from the step `language`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ordsmed.base.menu import Choice
from ordsmed.corpus.published_rules import PublishedRules, repeated, stops, words

SHORT = 30  # characters of a short line


@dataclass(frozen=True)
class FineWeb(PublishedRules, Choice):
    """Keeps documents that fulfill FineWeb's rules."""

    ended_lines: float = 0.12
    "least share of lines that end like sentences"
    short_lines: float = 0.67
    "largest share of lines of up to 30 characters"
    repeated_line_characters: float = 0.01
    "largest share of characters in lines that occurred before"
    new_lines: float = 0.3
    "most line ends per word"

    LEAST: ClassVar[frozenset[str]] = frozenset({"ended_lines"})
    RULES: ClassVar[tuple[str, ...]] = ("ended_lines", "short_lines", "repeated_line_characters", "new_lines")

    def measures(self, text: str, language: str) -> Iterator[tuple[str, float]]:
        lines = [line for line in text.split("\n") if line.strip()]
        count = max(len(lines), 1)
        yield "ended_lines", sum(line.endswith(stops()) for line in lines) / count
        yield "short_lines", sum(len(line) <= SHORT for line in lines) / count
        yield "repeated_line_characters", repeated(lines)[1] / max(len(text.replace("\n", "")), 1)
        yield "new_lines", text.count("\n") / max(len(words(text)), 1)
