"""A name in a recipe -> the file in a menu folder; the file system is the registry.

kind = "bert"  in a [model]  ->  src/ordsmed/models/bert.py  ->  its class `Settings`
kind = "my_lab.my_objective" ->  that module                 ->  its class `Settings`
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import offers
from ordsmed.base.errors import RecipeError, nearest

HOUSE = Path(__file__).parent.parent
MENUS = ("corpora", "cleaners", "tokenizers", "models", "objectives", "tasks", "optimizers", "formats")


@dataclass(frozen=True)
class Menu:
    """Marks a settings field whose value is one choice of a menu: `Annotated[Any, Menu("models")]`."""

    name: str
    usual: str = ""  # the kind that is meant where a table names none
    many: bool = False  # a list of choices may stand there too


@dataclass(frozen=True)
class Line:
    """One setting as `--help` prints it."""

    name: str
    type: str
    default: str
    doc: str


def entries(menu: str) -> list[str]:
    """The kinds a menu folder offers."""
    return sorted(path.stem for path in (HOUSE / menu).glob("*.py") if not path.stem.startswith("_"))


def load(menu: str, kind: str, *, place: str = "") -> type[Any]:
    """The `Settings` class of one choice."""
    if kind in entries(menu):
        return importlib.import_module(module_of(menu, kind)).Settings
    place = place or f"{menu} kind"
    if "." not in kind:
        raise RecipeError(place, f"`{kind}` is not in {menu}", "", nearest(kind, entries(menu)))
    module = offers.imported(kind, place)
    if not hasattr(module, "Settings"):
        raise RecipeError(place, f"`{kind}` has no class `Settings`", "one frozen dataclass of that name")
    offers.check(menu, kind, module.Settings, place)
    return module.Settings


def kind_of(settings: object) -> str:
    """The name a recipe uses for the file these settings stand in."""
    module = type(settings).__module__
    parts = module.split(".")
    return parts[2] if parts[0] == "ordsmed" and len(parts) == 3 and parts[1] in MENUS else module


def module_of(menu: str, kind: str) -> str:
    """Where a choice stands: a file of the house, or a module of somebody's own."""
    return f"ordsmed.{menu}.{kind}" if kind in entries(menu) else kind


def headline(module: str) -> str:
    """The first sentence of a module, read from its source and not imported."""
    return (ast.get_docstring(_tree(module)) or "").split("\n\n")[0].replace("\n", " ")


def lines(module: str, name: str = "Settings") -> list[Line]:
    """The settings of a dataclass, read from its source: torch need not be imported to print help."""
    tree = _tree(module)
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:  # it only hands on what stands elsewhere
        return _inherited(module, tree, ast.Name(name))
    inherited = [line for base in reversed(node.bases) for line in _inherited(module, tree, base)]
    found = []
    for this, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(this, ast.AnnAssign) or not isinstance(this.target, ast.Name):
            continue
        if ast.unparse(this.annotation).startswith("ClassVar"):
            continue
        told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        doc = after.value.value if told else ""  # type: ignore[union-attr]
        found.append(Line(this.target.id, _type(this.annotation), _default(this.value), " ".join(str(doc).split())))
    own = {line.name: line for line in found}
    return [own.pop(line.name, line) for line in inherited] + list(own.values())


def _inherited(module: str, tree: ast.Module, base: ast.expr) -> list[Line]:
    """The settings of a base class that a module defines, or imports from the house."""
    name = ast.unparse(base)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return lines(module, name)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return lines(str(node.module), alias.name)
    return []


def _tree(module: str) -> ast.Module:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _type(annotation: ast.expr) -> str:
    text = ast.unparse(annotation)
    if text.startswith("Annotated[Any, Menu("):
        return ("some of " if "many=True" in text else "one of ") + text.split("'")[1]
    if isinstance(annotation, ast.BinOp):
        return f"{_type(annotation.left)} | {_type(annotation.right)}"
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        return " | ".join(ast.unparse(e) for e in getattr(annotation.slice, "elts", [annotation.slice]))
    return text


def _default(value: ast.expr | None) -> str:
    if value is None:
        return "required"
    text = ast.unparse(value)
    if text.startswith("field(default_factory="):
        text = text.removeprefix("field(default_factory=").removesuffix(")").removeprefix("lambda: ")
    return text
