"""make a corpus: clean texts, remove duplicates, split them into sentences, and hold out some documents"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.base.errors import RecipeError, near
from ordsmed.base.screen import command
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines
from ordsmed.cli.recipes import make
from ordsmed.cli.verb import names

PLACE = ("make", 2)
RECIPE = "ordsmed.corpus.pipeline:Corpus"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.recipe(parser)
    parser.add_argument("--part", metavar="I/N", help="read and clean one of N parts, as in a job array")
    parser.add_argument("--until", metavar="read|match", help="stop after this step; the same command resumes")
    flags.anew(parser)
    flags.verbose(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.run import find_recipe
    from ordsmed.corpus.pipeline import Corpus, partly

    inner = [verb.removeprefix("corpus ") for verb in names() if verb.startswith("corpus ")]
    if like := near(args.name, inner):  # `corpus stat`, unless there is a recipe of this name
        try:
            find_recipe(args.name, "corpus")
        except RecipeError as error:
            raise RecipeError(error.place, error.found, "", f"did you mean `{command('corpus', like[0])}`?") from None
    if not (args.part or args.until):
        make(Corpus, args)
        return
    if args.anew:
        raise RecipeError("--anew", "found with --part or --until", "one of them", "`--anew` alone starts again")
    print_lines(partly(args.name, args.overrides, part=args.part, until=args.until))
