"""the built-in recipes; with a name: its text"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("look", 3)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one", offers=flags.recipes_and_files)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.base.run import find_recipe
    from ordsmed.base.settings import read

    if asked.name:
        path = find_recipe(asked.name, asked.name.split("/")[0] if "/" in asked.name else "")
        read(path)  # what is no recipe is refused
        print(path.read_text(encoding="utf-8"), end="")
        return
    for name in flags.recipes_of():
        first = find_recipe(name, "").read_text(encoding="utf-8").splitlines()[0]
        print_lines([f"  {name:<28}  {first.lstrip('# ')}"])
