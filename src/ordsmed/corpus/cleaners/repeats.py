"""Remove lines that occurred before in the same document.

    "A headline of the day\\nIts text.\\nA headline of the day"  ->  "A headline of the day\\nIts text."

Short lines may be repeated, as they are in dialog and in songs.
"""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice


@dataclass(frozen=True)
class Repeats(Choice):
    """Keeps the first of equal longer lines of a document."""

    shortest: int = 40
    "characters; shorter lines may be repeated"

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        seen: set[str] = set()
        lines = text.split("\n")
        remaining = [line for line in lines if not self._occurred_before(line.strip(), seen)]
        return "\n".join(remaining) if len(remaining) < len(lines) else text

    def _occurred_before(self, line: str, seen: set[str]) -> bool:
        if len(line) < max(self.shortest, 1):
            return False
        is_known = line in seen
        seen.add(line)
        return is_known
