"""A line that stood before in the same document is taken out.

    "A headline of the day\\nIts text.\\nA headline of the day"  ->  "A headline of the day\\nIts text."

Short lines may come again, as they do in talk and in songs.
"""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice


@dataclass(frozen=True)
class Repeats(Choice):
    """Each longer line of a document once."""

    shortest: int = 40
    "characters; shorter lines may come again"

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        seen: set[str] = set()
        lines = text.split("\n")
        left = [line for line in lines if not self._stood_before(line.strip(), seen)]
        return "\n".join(left) if len(left) < len(lines) else text

    def _stood_before(self, line: str, seen: set[str]) -> bool:
        if len(line) < max(self.shortest, 1):
            return False
        before = line in seen
        seen.add(line)
        return before
