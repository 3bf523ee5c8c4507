"""The license before and behind a book of Project Gutenberg is taken off; texts without its marks stay as they are."""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice
from ordsmed.text.markup.gutenberg import frame


@dataclass(frozen=True)
class Gutenberg(Choice):
    """A book of Project Gutenberg without license and credits."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """The book between its marks."""
        if not any(name in text for name in ("Gutenberg", "GUTENBERG", "gutenberg")):
            return text
        lines = text.split("\n")
        start, stop = frame(lines)
        return "\n".join(lines[start:stop])
