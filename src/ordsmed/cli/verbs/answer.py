"""find the part of a text that answers a question, with its probability; without arguments, prompt for both"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags

PLACE = ("use", 1)


def arguments(parser: Parser) -> None:
    flags.finetuned(parser)
    meaning = "a question and a text or its file, and settings task.key=value"
    parser.add_argument("text", nargs="*", metavar="QUESTION CONTEXT", help=meaning)
    meaning = "questions: SQuAD's JSON, JSON lines, question<TAB>context; or -"
    parser.add_argument("--file", default="", help=meaning)
    parser.add_argument("--best", type=whole(1), metavar="N", default=3, help="candidates to print (default 3)")
    flags.opening(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.use.answer import answer_lines

    words, overrides = flags.split_overrides(args.text)
    model = open(args.run, **flags.opened_as(args))
    options = {"file": args.file, "best": args.best, "as_json": args.json}
    for line in answer_lines(model.trained, words, sys.stdin.buffer, overrides, **options):
        print(line, flush=True)
