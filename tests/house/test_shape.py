"""The shape of the source: no function is longer than a page, and what is typed `Any` becomes fewer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from kit.sources import FILES, nodes
from ordsmed.base import menu

LONGEST = 60  # lines
# parameters, results and fields typed `Any` alone; these may only become fewer
MOST = {
    "api": 0,
    "base": 12,
    "cli": 0,
    "corpus": 2,
    "data": 0,
    "learn": 11,
    "machines": 0,
    "measure": 14,
    "nn": 12,
    "others": 6,
    "serve": 1,
    "tell": 5,
    "text": 0,
    "train": 2,
    "use": 20,
    "weights": 42,
}


def test_no_function_is_longer_than_a_page() -> None:
    functions = [
        (path.relative_to(menu.HOUSE).as_posix(), node.name, (node.end_lineno or 0) - node.lineno + 1)
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 2000
    assert [found for found in functions if found[2] > LONGEST] == []


def untyped(within: Iterable[ast.AST]) -> Iterator[str]:
    """Parameters, results and fields whose type is `Any`, or `Any` or None: not tables of JSON's."""
    for node in within:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            own = node.args
            given = [*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg]
            yield from (f"{node.name}({each.arg})" for each in given if each and _is_any(each.annotation))
            if _is_any(node.returns):
                yield f"{node.name} ->"
        elif isinstance(node, ast.AnnAssign) and _is_any(node.annotation):
            yield ast.unparse(node.target)


def _is_any(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in ("Any", "Any | None")


def test_less_and_less_is_of_any_type_across_seams() -> None:
    count = dict.fromkeys(MOST, 0)
    for path in FILES:
        if (room := path.relative_to(menu.HOUSE).parts[0]) in MOST:
            count[room] += len(list(untyped(nodes(path))))
    assert all(count[room] <= MOST[room] for room in MOST), f"{count}; name what it is, never raise MOST"
