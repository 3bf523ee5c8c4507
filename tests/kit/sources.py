"""The house's own source files, each read and parsed once for all rules about them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from pathlib import Path

from ordsmed.base import menu

FILES = sorted(menu.PACKAGE_ROOT.rglob("*.py"))


@functools.cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of a file's tree, as `ast.walk` gives it."""
    return tuple(ast.walk(tree(path)))


def offenders(wrong: Callable[[Path], object], paths: list[Path] = FILES) -> dict[str, object]:
    """What a rule finds wrong, by file; nothing where every file keeps it."""
    return {path.relative_to(menu.PACKAGE_ROOT).as_posix(): what for path in paths if (what := wrong(path))}
