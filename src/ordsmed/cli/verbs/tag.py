"""predict a tag for each word with a fine-tuned model, for typed texts, a file's lines or -"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags

PLACE = ("use", 1)


def arguments(parser: Parser) -> None:
    flags.finetuned(parser)
    flags.typed(parser, "TEXT", "texts with words separated by white space, or files of lines")
    flags.opening(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.labels import tag_lines
    from ordsmed.api.model import open
    from ordsmed.use.typed_texts import typed_texts

    model = open(args.run, **flags.opened_as(args))
    model.check("tag")
    texts = typed_texts("tag", args.text, args.file, sys.stdin.buffer)
    for line in tag_lines(model, texts, as_json=args.json):
        print(line, flush=True)
