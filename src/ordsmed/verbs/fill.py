"""a model's best guesses for every [MASK] in a text, or in each line of standard input"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, whole
from ordsmed.command import flags

PLACE = ("use", 1)


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts with [MASK]; none: lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    parser.add_argument("--best", type=whole(1), metavar="N", default=5, help="guesses a mask (default 5)")
    flags.any_step(parser)
    flags.threads(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.apply.fill import fill_lines

    how = {"step": asked.step, "threads": asked.threads}
    for line in fill_lines(asked.run, asked.text or sys.stdin.buffer, asked.best, **how):
        print(line, flush=True)
