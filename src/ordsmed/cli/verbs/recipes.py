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
    from ordsmed.base.run import find_recipe, recipe_text

    if asked.name:
        print(recipe_text(find_recipe(asked.name, asked.name.split("/")[0] if "/" in asked.name else "")), end="")
        return
    for name in flags.recipes_of():
        first = recipe_text(find_recipe(name, "")).splitlines()[0]
        print_lines([f"  {name:<28}  {first.lstrip('# ')}"])
