"""Remove the license before and after a book of Project Gutenberg. Texts without its marks are not changed."""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice
from ordsmed.text.markup.gutenberg import frame


@dataclass(frozen=True)
class Gutenberg(Choice):
    """A book of Project Gutenberg without license and credits."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        if not any(name in text for name in ("Gutenberg", "GUTENBERG", "gutenberg")):
            return text
        lines = text.split("\n")
        start, stop = frame(lines)
        return "\n".join(lines[start:stop])
