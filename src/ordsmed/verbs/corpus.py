"""clean text, drop duplicates, split it into sentences, and hold some documents out"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.base.errors import RecipeError
from ordsmed.command import flags
from ordsmed.command.output import print_lines
from ordsmed.command.recipes import make

PLACE = ("make", 2)
RECIPE = "ordsmed.corpus.pipeline:Corpus"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.recipe(parser)
    parser.add_argument("--part", metavar="I/N", help="read and clean one of N parts, as a job of an array does")
    parser.add_argument("--until", metavar="read|match", help="stop after this step; the same command goes on")
    flags.anew(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.corpus.pipeline import Corpus, partly

    if not (asked.part or asked.until):
        make(Corpus, asked)
        return
    if asked.anew:
        raise RecipeError("--anew", "beside --part or --until", "one of them", "`--anew` alone begins again")
    print_lines(partly(asked.name, asked.overrides, part=asked.part, until=asked.until))
