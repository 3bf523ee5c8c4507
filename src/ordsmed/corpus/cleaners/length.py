"""Drop documents that are too short or too long.

    min_words = 3:  "Too short"  ->  dropped

Words are separated by white space; count characters for languages without spaces.
"""

from dataclasses import dataclass
from typing import Any

from ordsmed.base.checks import at_least
from ordsmed.base.menu import Choice
from ordsmed.text.read import tally


@dataclass(frozen=True)
class Length(Choice):
    """Keeps documents within bounds of length."""

    min_characters: int = 0
    "documents with fewer are dropped"
    max_characters: int = 0
    "documents with more are dropped; 0: no limit"
    min_words: int = 0
    "documents with fewer are dropped"
    max_words: int = 0
    "documents with more are dropped; 0: no limit"

    def __post_init__(self) -> None:
        at_least(self, min_characters=0, max_characters=0, min_words=0, max_words=0)
        for unit in ("characters", "words"):
            least, most = self._bounds(unit)
            if most and most < least:
                raise ValueError(f"max_{unit}: found {most}; wanted min_{unit} = {least} or more")

    def clean(self, text: str, meta: dict[str, Any]) -> str | None:
        for unit in ("characters", "words"):
            least, most = self._bounds(unit)
            if not least and not most:
                continue
            count = len(text.strip()) if unit == "characters" else len(text.split())
            if count < least or (most and count > most):
                tally().left_out[f"length: {'few' if count < least else 'many'} {unit}"] += 1
                return None
        return text

    def _bounds(self, unit: str) -> tuple[int, int]:
        return getattr(self, f"min_{unit}"), getattr(self, f"max_{unit}")
