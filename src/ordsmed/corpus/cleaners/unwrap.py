"""Lines that were broken at a fixed width become paragraphs again; texts that were not wrapped stay as they are."""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice
from ordsmed.text.markup.wrapped import joined


@dataclass(frozen=True)
class Unwrap(Choice):
    """Lines broken at a fixed width joined to paragraphs."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """The text with its paragraphs on one line each; verse, headings and lists keep their lines."""
        return "\n".join(joined(text.split("\n")))
