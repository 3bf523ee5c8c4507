"""distribute the documents of corpora over text files of equal length, for training and for tests"""

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
    meaning = "finished corpora, and the folder to write"
    parser.add_argument("folders", nargs="+", metavar="FOLDER... OUT", help=meaning)
    parser.add_argument("--train", type=whole(1), metavar="N", default=256, help="files for training (default 256)")
    parser.add_argument("--test", type=whole(0), metavar="N", default=0, help="files for tests (default none)")
    meaning = "share of the sentences for tests (default 0.1)"
    parser.add_argument("--fraction", type=number, metavar="X", default=0.1, help=meaning)
    meaning = "splits of the corpora: train (default), validation, test, several of them or all"
    parser.add_argument("--splits", default="train", help=meaning)
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.corpus.shards import shards

    *folders, out = args.folders
    if not folders:
        raise RecipeError("corpus shards", f"found one folder, {out}", "FOLDER... OUT")
    options = {"train": args.train, "test": args.test, "fraction": args.fraction, "splits": args.splits}
    print_lines(shards(folders, out, **options, anew=args.anew))
