"""Join hard-wrapped lines into paragraphs. Texts that are not wrapped are not changed."""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.menu import Choice
from ordsmed.text.markup.line_wrapping import joined


@dataclass(frozen=True)
class Unwrap(Choice):
    """Joins lines broken at a fixed width to paragraphs."""

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        """Return the text with one paragraph per line; verse, headings and lists keep their lines."""
        return "\n".join(joined(text.split("\n")))
