"""score a file of predictions, written by any program, with the official metrics"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("evaluate", 2)


def arguments(parser: Parser) -> None:
    meaning = "squad-1.1, squad-2.0, a GLUE task, classify or tag"
    parser.add_argument("task", metavar="TASK", help=meaning, offers=tasks)
    flags.task_files(parser, "+", "DATA... PREDICTIONS")
    flags.json_line(parser)


def tasks() -> list[str]:
    from ordsmed.use.score import names

    return names()


def run(args: argparse.Namespace) -> None:
    from ordsmed.use.score import score

    files, overrides = flags.split_overrides(args.files)
    *data, predictions = files or [""]
    if not data:
        raise RecipeError("score", f"found one file, {predictions}", "TASK DATA... PREDICTIONS")
    facts = score(args.task, data, predictions, overrides)
    print_or_json(facts, [f"{name}: {value}" for name, value in facts.items()], args)
