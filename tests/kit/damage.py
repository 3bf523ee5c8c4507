"""Damage: any value of a table made any other one, and all that a report writes of a folder then."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ordsmed.tell.report import content, page, parts
from ordsmed.tell.report.markdown import markdown

OTHERS = [None, "x", -1, 1e400, 10**400, [], {"a": [1]}, [None], "\ud800"]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*at, key))


def damages(whole: Any, others: list[Any] = OTHERS) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Places, each with a third of the other values in turn; with all of them under ORDSMED_GRID=full."""
    step = 1 if os.environ.get("ORDSMED_GRID") == "full" else 3
    for number, at in enumerate(places(whole)):
        yield from ((at, other) for other in others[number % step :: step])


def changed(value: Any, at: tuple[Any, ...], other: Any) -> Any:
    if not at:
        return other
    result = inner = copy.deepcopy(value)
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = other
    return result


def written(path: Path) -> dict[str, Any]:
    """The facts of a folder, of which all can be written."""
    facts = content.content([str(path)])
    text = page.page(facts)
    assert "<h1>" in text
    for each in (text, markdown(facts), parts.dumps(facts)):
        assert each.encode()
    return facts
