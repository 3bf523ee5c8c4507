"""the scores of a fine-tuned model on files, or on its own dev files, with tables"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.command import flags
from ordsmed.command.output import print_or_json

PLACE = ("judge", 1)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    flags.finetuned(parser)
    flags.task_files(parser, "*", "FILE")
    flags.opening(parser)
    flags.json_line(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.apply.predict import evaluate

    files, overrides = flags.split_overrides(asked.files)
    facts, lines = evaluate(asked.run, files, overrides, **flags.opened_as(asked))
    print_or_json(facts, lines, asked)
