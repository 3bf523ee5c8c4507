"""docs/add-a/site.md lists every key of a site, as the code has it.

Run as a script (PYTHONPATH=src:tests), it prints the tables of the page.
"""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from types import NoneType

import pytest

from ordsmed.base import menu
from ordsmed.base.launch import site

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/add-a/site.md"
TABLES = (site.Site, site.Partition, site.Quality)
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", dict: "table"}


def value(kind: typing.Any) -> str:
    """What a key takes, in words."""
    origin, inner = typing.get_origin(kind), [part for part in typing.get_args(kind) if part not in (NoneType, ...)]
    if origin is typing.Literal:
        return ", ".join(inner)
    if origin is tuple:
        return "tables" if dataclasses.is_dataclass(inner[0]) else f"list: {value(inner[0])}"
    if origin is not None and NoneType in typing.get_args(kind):
        return value(inner[0])
    return WORDS[origin or kind]


def table(cls: type) -> str:
    """A row a key: name, value, meaning, and what is taken where it is left out."""
    docs = {field.name: field.doc for field in menu._fields(site.__name__, cls.__name__)}
    kinds = typing.get_type_hints(cls)
    rows = ["| key | value | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(cls):
        usual = field.default if isinstance(field.default, str) else ""
        left_out = f" (`{usual}`)" if usual not in ("", "unknown") else ""
        rows.append(f"| `{field.name}` | {value(kinds[field.name])} | {docs[field.name]}{left_out} |")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("cls", TABLES)
def test_the_page_lists_every_key(cls: type) -> None:
    assert table(cls) in PAGE.read_text(encoding="utf-8")


def test_every_key_has_a_meaning() -> None:
    assert [row for cls in TABLES for row in table(cls).splitlines() if row.endswith("|  |")] == []


if __name__ == "__main__":
    print("\n".join(map(table, TABLES)))
