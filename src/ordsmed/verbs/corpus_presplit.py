"""JSON lines of a corpus, a document's sentences each on a line of its text"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.command import flags
from ordsmed.command.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("out", metavar="OUT", help="the folder to write")
    flags.anew(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.corpus.presplit import presplit

    print_lines(presplit(asked.folder, asked.out, anew=asked.anew))
