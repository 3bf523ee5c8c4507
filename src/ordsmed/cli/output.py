"""Output of verbs: lines that fit the screen, JSON, settings of a dataclass, and errors."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable

from ordsmed.base import menu
from ordsmed.base.errors import RecipeError
from ordsmed.base.screen import columns, fitted, fitted_lines


def print_lines(lines: Iterable[str]) -> None:
    for line in fitted_lines(lines, columns(sys.stdout)):
        print(line)


def print_or_json(facts: object, lines: Iterable[str], args: argparse.Namespace) -> None:
    """Print lines, or with --json the facts as one line of JSON."""
    if args.json:
        print(json.dumps(facts))
    else:
        print_lines(lines)


def fail(line: str, status: int) -> None:
    """Print an error, with the rank unless it is 0, and exit with `status`."""
    rank = f" rank {os.environ['RANK']}:" if os.environ.get("RANK", "0") != "0" else ""
    lines = f"ordsmed:{rank} {line}".split("\n")
    print("\n".join(part for line in lines for part in fitted(line, columns(sys.stderr))), file=sys.stderr)
    sys.exit(status)


def speaks() -> bool:
    """Return whether this process prints errors and results: a single one, or rank 0 of several."""
    from ordsmed.base.ranks import process_info

    try:
        return process_info(os.environ).rank == 0
    except RecipeError:  # the launcher's variables are invalid, so every process prints the error
        return True


def settings_lines(settings: Iterable[menu.SettingLine], indent: str) -> list[str]:
    """Return lines for settings: name, type and default, and below them the help text."""
    wide, lines = columns(sys.stdout) or 100 + len(indent) + 4, []
    for setting in settings:
        lines += fitted(f"{indent}{setting.name} ({setting.type}, {setting.default})", columns(sys.stdout))
        lines += fitted(f"{indent}    {setting.doc}", wide)
    return lines


def all_settings(module: str, name: str = "", indent: str = "  ") -> list[str]:
    """Return lines for the settings of a dataclass and of every table in it."""
    lines = settings_lines(menu.lines(module, name), indent)
    for table in menu.nested(module, name):
        of = f" ({', '.join(table.kinds)})" if table.kinds else ""
        lines += ["", f"{indent[2:]}{table.key}{of}:", *settings_lines(menu.lines(table.module, table.name), indent)]
    return lines
