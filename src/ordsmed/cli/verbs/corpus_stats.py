"""print statistics of a corpus: documents, words, lengths, duplicates, languages, and what cleaning steps dropped"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser
from ordsmed.base.screen import columns
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 2)


def arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--tokenizer", help="folder, file or recipe of a tokenizer: count tokens as well")


def run(args: argparse.Namespace) -> None:
    from ordsmed.tell.show.stats import stats

    print_lines(stats(args.folder, tokenizer=args.tokenizer, wide=columns(sys.stdout)))
