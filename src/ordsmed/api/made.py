"""Made: what a verb leaves that is called from Python: where it stands, its facts, the lines that the verb prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base.say import in_words
from ordsmed.base.screen import html_table

# of a folder's status, what is no news to a person
HIDDEN = ("verb", "state", "fingerprint", "began", "parts", "checksums", "stood_in", "folder")
LONGEST = 300  # characters of a fact in a notebook


@dataclass(frozen=True)
class Made:
    """A folder or a file, which may stand wherever a path may: `ordsmed.encode(..., corpus=ordsmed.corpus(...))`."""

    path: Path
    facts: Mapping[str, Any] = field(repr=False)
    lines: Sequence[str] = field(repr=False)

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        """A table, for a notebook."""
        return html_table([("path", self.path), *_rows(self.facts)])


def _rows(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A row a fact, those of a table within behind its name; what is empty, long or a list stands in `facts` alone."""
    for key, value in facts.items():
        name = f"{above}{key}"
        if key in HIDDEN:
            continue
        if isinstance(value, Mapping):
            yield from _rows(value, f"{name} ")
        elif value not in (None, "", 0) and not isinstance(value, list) and len(text := _said(value)) <= LONGEST:
            yield name, text


def _said(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else in_words(value)
