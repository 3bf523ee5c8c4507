"""distribute the lines of JSON files randomly over train.json, dev.json and test.json"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE... OUT", help="JSON lines, and the folder to write")
    meaning = "share of the lines for dev.json (default 0.05)"
    parser.add_argument("--dev", type=number, metavar="X", default=0.05, help=meaning)
    parser.add_argument("--test", type=number, metavar="X", default=0.0, help="share for test.json (default none)")
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="random seed (default 0)")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.corpus.jsonl_files import split

    *sources, out = args.files
    if not sources:
        raise RecipeError("corpus split", f"found one name, {out}", "FILE... OUT")
    print_lines(split(sources, out, dev=args.dev, test=args.test, seed=args.seed, anew=args.anew))
