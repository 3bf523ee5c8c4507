"""predict the class or number of texts or pairs with a fine-tuned model, for typed texts, a file's lines or -"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags

PLACE = ("use", 1)


def arguments(parser: Parser) -> None:
    flags.finetuned(parser)
    flags.typed(parser, "TEXT", "texts, or TEXT SECOND if the model learned pairs, or files of lines")
    parser.add_argument("--best", type=whole(1), metavar="N", default=3, help="classes to print (default 3)")
    flags.opening(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.labels import classify_lines
    from ordsmed.api.model import open
    from ordsmed.use.typed_texts import typed_texts

    model = open(args.run, **flags.opened_as(args))
    model.check("classify")
    texts = typed_texts("classify", args.text, args.file, sys.stdin.buffer, pairs=model.pairs)
    for line in classify_lines(model, texts, best=args.best, as_json=args.json):
        print(line, flush=True)
