"""select addresses worth downloading from lists and Reddit dumps, one per line; nothing is downloaded"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    meaning = "lists of addresses or dumps of Reddit submissions, compressed or not, and the file to write"
    parser.add_argument("files", nargs="+", metavar="FILE... OUT", help=meaning)
    parser.add_argument("--score", type=int, metavar="N", default=3, help="minimum score of a submission (default 3)")
    parser.add_argument("--over-18", action="store_true", help="keep submissions marked as over 18")
    meaning = "file of domains to leave out, instead of `usual`"
    parser.add_argument("--blacklist", action="append", metavar="FILE", help=meaning)
    meaning = "leave out addresses that match REGEX"
    parser.add_argument("--pattern", action="append", metavar="REGEX", help=meaning)
    parser.add_argument("--private", action="store_true", help="keep hosts of private networks")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.web.urls import Rules, write_list

    *inputs, out = args.files
    if not inputs:
        raise RecipeError("corpus addresses", f"found one file, {out}", "FILE... OUT")
    try:
        rules = Rules(args.score, args.over_18, args.blacklist or ["usual"], args.pattern or [])
    except ValueError as error:
        raise RecipeError("corpus addresses", str(error)) from None
    print_lines(write_list(inputs, out, rules, private=args.private, anew=args.anew))
