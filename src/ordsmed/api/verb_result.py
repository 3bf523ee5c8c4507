"""The result of a verb that is called from Python: its folder, facts and printed lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordsmed.base.say import in_words
from ordsmed.base.screen import html_table

# entries of a folder's status that are of no interest to a user
HIDDEN = ("verb", "state", "fingerprint", "began", "parts", "checksums", "stood_in", "folder")
LONGEST = 300  # longest fact in a notebook's table, in characters


@dataclass(frozen=True)
class Made:
    """A folder or file. It may be passed wherever a path is expected: `ordsmed.encode(...,
    corpus=ordsmed.corpus(...))`.
    """

    path: Path
    facts: Mapping[str, Any] = field(repr=False)
    lines: Sequence[str] = field(repr=False)  # what the command prints

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return html_table([("path", self.path), *_rows(self.facts)])


def _rows(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield a row per fact, without empty or long facts and lists. Facts of nested tables are named by their path."""
    for key, value in facts.items():
        name = f"{above}{key}"
        if key in HIDDEN:
            continue
        if isinstance(value, Mapping):
            yield from _rows(value, f"{name} ")
        elif value not in (None, "", 0) and not isinstance(value, list) and len(text := _as_text(value)) <= LONGEST:
            yield name, text


def _as_text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else in_words(value)
