"""What complaints show of settings is what a recipe would say: no tables and tuples as Python writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordsmed.base.settings import as_toml

HOUSE = Path(__file__).parents[2] / "src" / "ordsmed"
PLURAL = ("dict[", "tuple[", "Mapping[", "ClassWeights")  # in annotations of what Python writes in its own way


def bare(tree: ast.AST) -> Iterator[str]:
    """Fields and arguments of such types that stand in a complaint as they are."""
    for node in ast.walk(tree):
        kinds = {}
        if isinstance(node, ast.ClassDef):
            kinds = {
                f"self.{ast.unparse(n.target)}": ast.unparse(n.annotation)
                for n in node.body
                if isinstance(n, ast.AnnAssign)
            }
        elif isinstance(node, ast.FunctionDef):
            kinds = {a.arg: ast.unparse(a.annotation) for a in node.args.args if a.annotation}
        for complaint in (n for n in ast.walk(node) if isinstance(n, ast.Raise) and kinds):
            for shown in (n.value for n in ast.walk(complaint) if isinstance(n, ast.FormattedValue)):
                if any(plural in kinds.get(ast.unparse(shown), "") for plural in PLURAL):
                    yield f"{complaint.lineno}: {ast.unparse(shown)}"


def test_complaints_show_tables_and_lists_as_toml() -> None:
    paths = sorted(HOUSE.rglob("*.py"))
    assert [f"{path}:{line}" for path in paths for line in bare(ast.parse(path.read_text(encoding="utf-8")))] == []
    seen = "class A:\n  a: dict[str, int]\n  def f(self, b: tuple[int, ...]):\n    raise E(f'{self.a} {b} {g(b)}')"
    assert sorted(bare(ast.parse(seen))) == ["4: b", "4: self.a"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b c": {"d": True}}, '{ a = 1, "b c" = { d = true } }'),
        ((1, (2.5, "x")), '[1, [2.5, "x"]]'),
        ({}, "{}"),
    ],
)
def test_values_as_recipes_write_them(value: object, text: str) -> None:
    assert as_toml(value) == text
