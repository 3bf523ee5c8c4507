"""What verbs print: lines that fit the screen, one object of JSON, the settings of a dataclass; and who prints."""

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
    """On standard output, as wide as it is."""
    for line in fitted_lines(lines, columns(sys.stdout)):
        print(line)


def print_or_json(facts: object, lines: Iterable[str], args: argparse.Namespace) -> None:
    """Lines for a person, or with --json the facts in one line."""
    if args.json:
        print(json.dumps(facts))
    else:
        print_lines(lines)


def fail(line: str, status: int) -> None:
    """End with a line on standard error, which names the process where there are several."""
    rank = f" rank {os.environ['RANK']}:" if os.environ.get("RANK", "0") != "0" else ""
    lines = f"ordsmed:{rank} {line}".split("\n")
    print("\n".join(part for line in lines for part in fitted(line, columns(sys.stderr))), file=sys.stderr)
    sys.exit(status)


def speaks() -> bool:
    """Is this the process of several that speaks?"""
    from ordsmed.base.ranks import place_of

    try:
        return place_of(os.environ).rank == 0
    except RecipeError:  # then that is the message, of every process: none knows which it is
        return True


def settings_lines(settings: Iterable[menu.Line], indent: str) -> list[str]:
    """Settings, each with its type and default, and what it means below."""
    wide, lines = columns(sys.stdout) or 100 + len(indent) + 4, []
    for setting in settings:
        lines += fitted(f"{indent}{setting.name} ({setting.type}, {setting.default})", columns(sys.stdout))
        lines += fitted(f"{indent}    {setting.doc}", wide)
    return lines


def all_settings(module: str, name: str = "", indent: str = "  ") -> list[str]:
    """The settings of a dataclass, and of every table within them."""
    lines = settings_lines(menu.lines(module, name), indent)
    for table in menu.nested(module, name):
        of = f" ({', '.join(table.kinds)})" if table.kinds else ""
        lines += ["", f"{indent[2:]}{table.key}{of}:", *settings_lines(menu.lines(table.module, table.name), indent)]
    return lines
