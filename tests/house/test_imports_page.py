"""The page of names that add-ons and plugins may import has all of them, they exist, and they are typed."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from house.test_imports import ADD_ONS, HOUSE, MODULES, room_of
from kit.sources import nodes

DOCS = Path(__file__).parents[2] / "docs"
MOST = {"machines": 112, "others": 82, "serve": 78, "web": 46}  # wanted: 40, 30, 30; they may only fall


@functools.cache
def listed() -> frozenset[str]:
    """The names of the page, each with its module."""
    page = (DOCS / "imports.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return frozenset(f"{module}.{name}" for module, text in sections for name in re.findall(r"^- `(\w+)`:", text, re.M))


def exists(name: str) -> bool:
    module, _, last = name.rpartition(".")
    return hasattr(import_module(module), last)


def imported(tree: list[ast.AST]) -> set[str]:
    """What code imports from ordsmed: names, and the attributes of modules that it uses."""
    names, modules = set[str](), dict[str, str]()
    for node in tree:
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "ordsmed":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in MODULES:
                    modules[alias.asname or alias.name] = full
                else:
                    names.add(full)
    for node in tree:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            names.add(f"{modules[node.value.id]}.{node.attr}")
    return {name for name in names if room_of(name)[0] not in ADD_ONS and exists(name)}


def names_of(add_on: str) -> set[str]:
    return {name for path in (HOUSE / add_on).rglob("*.py") for name in imported(list(nodes(path)))}


@pytest.mark.parametrize("add_on", ADD_ONS)
def test_an_add_on_imports_names_of_the_page(add_on: str) -> None:
    names = names_of(add_on)
    assert names - listed() == set(), "use another name, or list these in docs/imports.md"
    assert len(names) <= MOST[add_on]


def test_plugins_import_names_of_the_page() -> None:
    """The files that the pages of docs/add-a show."""
    names = set[str]()
    for page in (DOCS / "add-a").glob("*.md"):
        for block in re.findall(r"(?:^(?: {4}.*)?\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
            code = "\n".join(line[4:] for line in block.split("\n"))
            if re.search(r"^from ordsmed", code, re.MULTILINE):
                names |= imported(list(ast.walk(ast.parse(code))))
    assert len(names) > 30
    assert names - listed() == set()


def test_every_name_of_the_page_exists_and_is_typed() -> None:
    assert [name for name in sorted(listed()) if not exists(name)] == []
    for name in listed():
        module, _, last = name.rpartition(".")
        value = inspect.unwrap(getattr(import_module(module), last))
        if inspect.isfunction(value):
            parameters = set(inspect.signature(value).parameters) | {"return"}
            assert parameters <= set(value.__annotations__), f"{name} is not typed"
