"""list what each family of networks supports (objectives, tasks, layouts, files); with a family: how or why not

The table is computed by the code that checks recipes: `-` means an error, a setting means that it must be set.
"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import Parser
from ordsmed.base.errors import RecipeError, nearest
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("inspect", 3)


def arguments(parser: Parser) -> None:
    parser.add_argument("family", nargs="?", metavar="FAMILY", help="a family", offers=lambda: menu.entries("models"))
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--markdown", action="store_true", help="as Markdown")
    flags.json_line(shapes)


def run(args: argparse.Namespace) -> None:
    if args.family and args.family not in menu.entries("models"):
        wanted = nearest(args.family, menu.entries("models"))
        raise RecipeError(f"`{args.family}`", "no such family", "", wanted)
    from ordsmed.tell.show import features

    rows = features.features()
    if args.markdown:
        print("\n".join(features.markdown(rows, args.family or "")))
    elif args.json:
        print_or_json(features.facts(rows, args.family or ""), [], args)
    else:
        print_lines(features.lines(rows, args.family or ""))
