"""The shape of the source: no function is longer than a page, what is typed `Any` becomes fewer, clocks stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

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
        (path.relative_to(menu.PACKAGE_ROOT).as_posix(), node.name, (node.end_lineno or 0) - node.lineno + 1)
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
        if (room := path.relative_to(menu.PACKAGE_ROOT).parts[0]) in MOST:
            count[room] += len(list(untyped(nodes(path))))
    assert all(count[room] <= MOST[room] for room in MOST), f"{count}; name what it is, never raise MOST"


def test_no_test_changes_the_clock_of_all() -> None:
    """A server in a thread of the tests sleeps by it: `kit.clocks.set_time` changes that of one module."""
    changed = re.compile(r"""setattr\(\s*(?:\w+\.)*time,\s*["']|setattr\(\s*["']time\.|patch\(["']time\.""")
    for text in ('setattr(time, "sleep"', 'setattr(run.time, "time"', "setattr('time.sleep'"):
        assert changed.search(text)
    found = [path.name for path in Path(__file__).parents[1].rglob("*.py") if changed.search(path.read_text("utf-8"))]
    assert set(found) <= {Path(__file__).name}
