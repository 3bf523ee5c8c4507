"""Checked values from files that may hold anything: finite numbers, encodable text, tables."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ordsmed.base.errors import DataError
from ordsmed.base.say import say

LARGEST = 1e300  # larger numbers count as infinite


def clean(value: object) -> Any:
    """Return a value that JSON can hold: NaN and infinity become null, half surrogates `?`."""
    if isinstance(value, Mapping):
        return {written(str(key)): clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clean(inner) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if abs(value) <= LARGEST else None
    return written(str(value))


def written(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return float(value) if good and math.isfinite(value) else None  # type: ignore[arg-type]


def count(value: object) -> int | float | None:
    return None if (result := number(value)) is None else int(result) if result == int(result) else result


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def matching(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """Return the dictionaries in a list, empty if the value is not one."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def shaped(path: Path, facts: dict[str, Any], shape: Any, remedy: str) -> dict[str, Any]:
    """Return cleaned facts; raise an error if a field has the wrong type."""
    cleaned = table(clean(facts))
    try:
        msgspec.convert(cleaned, shape)
    except msgspec.ValidationError as error:
        raise DataError(path, f"is damaged: {error}", "", remedy) from None
    return cleaned


@functools.cache
def note_left_out(line: str) -> None:
    """Print a note on a damaged file, once even if a served page is requested often."""
    say(f"{line}; it is left out")
