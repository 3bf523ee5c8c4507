"""convert a model of another format to a folder for embed, export and `init`"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("use", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    parser.add_argument("source", metavar="FOLDER|FILE", help="a model in a format of `ordsmed menus formats`")
    parser.add_argument("out", metavar="OUT", help="the folder to write")
    meaning = "change a setting of the model, or of its objective or task (objective.generator.heads, task.labels)"
    parser.add_argument("overrides", nargs="*", metavar="model.key=value", help=meaning)
    flags.anew(parser)
    flags.cache(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.weights.importing import take_over

    print_lines(take_over(args.source, args.out, args.overrides, anew=args.anew))
