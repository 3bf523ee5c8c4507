"""write a fine-tuned model's predictions for files, labeled or not: predictions.json, .tsv, CoNLL"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("use", 2)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    flags.finetuned(parser)
    flags.task_files(parser, "+", "FILE... OUT")
    flags.opening(parser)
    meaning = "score them as well, if the files are labeled"
    parser.add_argument("--scores", action="store_true", help=meaning)
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.model import open
    from ordsmed.base.stages import VECTORS, stage
    from ordsmed.use.predict import free

    files, overrides = flags.split_overrides(args.files)
    *sources, out = files or [""]
    if not sources:
        raise RecipeError("predict", f"found one path, {out}", "RUN FILE... OUT")
    free(out, anew=args.anew)  # report an error before a model is opened
    model = open(stage(args.run, *VECTORS), **flags.opened_as(args))
    print_lines(model.predict(sources, out, overrides=overrides, anew=args.anew, scores=args.scores).lines)
