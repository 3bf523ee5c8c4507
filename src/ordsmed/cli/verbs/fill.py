"""print a model's best guesses for every [MASK] in a text, or in each line of standard input"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags

PLACE = ("use", 1)


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts with [MASK]; none: lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    parser.add_argument("--best", type=whole(1), metavar="N", default=5, help="guesses per mask (default 5)")
    meaning = "fill all masks of a text, those the model is surest of first, and print it"
    parser.add_argument("--all", action="store_true", help=meaning)
    meaning = "with --all: masks filled per pass (default 1)"
    parser.add_argument("--together", type=whole(1), metavar="N", default=1, help=meaning)
    flags.any_step(parser)
    flags.precision(parser)
    flags.threads(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.base.hub import is_address
    from ordsmed.use.fill import lines

    served = is_address(args.run)
    device = "auto" if served else "cpu"
    model = open(args.run, step=args.step, device=device, precision=args.precision, threads=args.threads)
    model.check("fill_all" if args.all and served else "fill")  # before a user types a line
    for text in filter(str.strip, args.text or lines(sys.stdin.buffer)):
        if args.all:
            print(model.fill_all(text, together=args.together), flush=True)
        else:
            print("\n".join(model.fill(text, best=args.best).lines), flush=True)
