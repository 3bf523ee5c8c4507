"""Values of files that anybody may have written: numbers that are some, text that can be written, tables of tables."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ordsmed.base.errors import DataError
from ordsmed.base.say import say

LARGEST = 1e300  # of numbers that are taken for some


def clean(value: object) -> Any:
    """As it is, but for what no JSON holds: numbers that are none or endless are null, half characters are `?`."""
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
    """A text that UTF-8 can write."""
    return text.encode("utf-8", "replace").decode()


def number(value: object) -> float | None:
    """One that is neither endless nor none."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    return float(value) if good and math.isfinite(value) else None  # type: ignore[arg-type]


def count(value: object) -> int | float | None:
    """A number as it stands, whole where it is."""
    return None if (result := number(value)) is None else int(result) if result == int(result) else result


def exists(path: Path) -> bool:
    """Is there such a file? Not as far as known where nobody may look."""
    try:
        return path.exists()
    except OSError:
        return False


def matching(folder: Path, pattern: str) -> list[Path]:
    """The files of such names, in order; none where nobody may look."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def text(value: object) -> str | None:
    """A text; what is something else is left out."""
    return value if isinstance(value, str) and value else None


def table(value: object) -> dict[str, Any]:
    """A table; empty where it is none."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """The tables of a list; empty where it is none."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def shaped(path: Path, facts: dict[str, Any], shape: Any, remedy: str) -> dict[str, Any]:
    """The facts of a file as they stand, cleaned; one in which any is of another kind than it has to be is damaged."""
    cleaned = table(clean(facts))
    try:
        msgspec.convert(cleaned, shape)
    except msgspec.ValidationError as error:
        raise DataError(path, f"is damaged: {error}", "", remedy) from None
    return cleaned


@functools.cache
def tell_left_out(line: str) -> None:
    """Of a file that is damaged, once, however often a page that is served asks."""
    say(f"{line}; it is left out")
