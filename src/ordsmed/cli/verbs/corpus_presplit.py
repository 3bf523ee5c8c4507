"""write JSON lines of a corpus or a file with each sentence of a text on its own line"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    parser.add_argument("folder", metavar="FOLDER|FILE", help="a corpus; or JSON lines, whose other keys are kept")
    parser.add_argument("out", metavar="OUT", help="the folder to write, or for a file the file")
    parser.add_argument("--key", metavar="KEY", default="text", help="for a file: the key of the text (default text)")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from ordsmed.corpus import jsonl_files
    from ordsmed.corpus.presplit import presplit

    if Path(args.folder).is_file():
        print_lines(jsonl_files.presplit(args.folder, args.out, key=args.key, anew=args.anew))
        return
    print_lines(presplit(args.folder, args.out, anew=args.anew))
