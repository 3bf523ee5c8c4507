"""what there is; with a verb: its words, flags and settings"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import overview, verb
from ordsmed.cli.output import print_lines

PLACE = ("look", 9)


def arguments(parser: Parser) -> None:
    meaning = "one of them, with all it takes"
    parser.add_argument("of", nargs="*", metavar="VERB", help=meaning, offers=words_of_verbs)


def words_of_verbs() -> list[str]:
    """`corpus stats` is two words to a shell."""
    return sorted({word for name in verb.names() for word in name.split()})


def run(asked: argparse.Namespace) -> None:
    if asked.of:
        verb.find(" ".join(asked.of)).parser(helped=True).print_help()
    else:
        print_lines(overview.verbs_in_groups())
