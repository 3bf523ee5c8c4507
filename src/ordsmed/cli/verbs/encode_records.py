"""write rows of a store as TFRecords for the original BERT and ELECTRA code"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, whole
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 6)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    parser.add_argument("data", metavar="DATA", help="folder or recipe of `encode`")
    parser.add_argument("out", metavar="FOLDER", help="where to write")
    parser.add_argument("objective", metavar="OBJECTIVE", help="kind of rows: mlm_nsp (for BERT), rtd (for ELECTRA)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of the objective")
    parser.add_argument("--length", type=whole(5), default=128, metavar="N", help="tokens per row (128)")
    parser.add_argument(
        "--times", type=whole(1), default=1, metavar="N", help="epochs, each with new pairs and masks (1)"
    )
    parser.add_argument("--files", type=whole(1), default=1, metavar="N", help="number of files (1)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="random seed (0)")
    parser.add_argument("--split", choices=("train", "validation"), default="train", help="which part of the data")
    parser.add_argument("--gzip", action="store_true", help="compress the files")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.use.records import write_records

    options = {"length": args.length, "split": args.split, "times": args.times, "parts": args.files}
    options |= {"seed": args.seed, "packed": args.gzip, "anew": args.anew}
    print_lines(write_records(args.data, args.out, args.objective, args.overrides, **options))
