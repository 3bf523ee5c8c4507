"""Scores of a finished training, read from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.errors import DataError


def read_scores(folder: Path) -> dict[str, Any]:
    """Return scores.json of a run; `guessing` holds the scores of a baseline that knows only frequencies."""
    facts = files.read_table(folder / "scores.json")
    if not isinstance(facts.get("guessing", {}), dict):
        problem = f"`guessing` is {facts['guessing']!r}, no table of scores"
        raise DataError(folder / "scores.json", problem, "", "the file is damaged; `ordsmed evaluate` writes it again")
    return facts


def numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for name, value in facts.items() if isinstance(value, float) and name != "validation"}
