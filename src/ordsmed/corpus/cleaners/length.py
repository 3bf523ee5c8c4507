"""Drop documents that are too short or too long.

    least_words = 3:  "Too short"  ->  dropped

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

    least_characters: int = 0
    "documents with fewer are dropped"
    most_characters: int = 0
    "documents with more are dropped; 0: no limit"
    least_words: int = 0
    "documents with fewer are dropped"
    most_words: int = 0
    "documents with more are dropped; 0: no limit"

    def __post_init__(self) -> None:
        at_least(self, least_characters=0, most_characters=0, least_words=0, most_words=0)
        for unit in ("characters", "words"):
            least, most = self._bounds(unit)
            if most and most < least:
                raise ValueError(f"most_{unit}: found {most}; wanted least_{unit} = {least} or more")

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
        return getattr(self, f"least_{unit}"), getattr(self, f"most_{unit}")
