"""train a linear classifier of good documents, for the cleaning step `judge`"""

from __future__ import annotations

import argparse
from typing import Any

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("make", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    meaning = "tables with texts and labels, or LABEL=PATH: a corpus or texts of that label; and the folder to write"
    parser.add_argument("files", nargs="+", metavar="FILE... OUT", help=meaning)
    parser.add_argument("--text", metavar="COLUMN", default="text", help="column of texts (default text)")
    parser.add_argument("--label", metavar="COLUMN", default="label", help="column of labels (default label)")
    meaning = "take the first group of this regular expression as the label"
    parser.add_argument("--pattern", metavar="REGEX", default="", help=meaning)
    meaning = "most documents of each label, drawn at random (default 100000)"
    number_of: dict[str, Any] = {"type": whole(1), "metavar": "N", "dest": "most", "default": 100_000}
    parser.add_argument("--max-documents", former="--most", help=meaning, **number_of)
    parser.add_argument("--dev", type=number, metavar="X", default=0.1, help="share to evaluate it on (default 0.1)")
    parser.add_argument("--bits", type=whole(8, 26), metavar="N", default=20, help="2^N weights per label (default 20)")
    parser.add_argument("--epochs", type=whole(1), metavar="N", default=5, help="passes over the data (default 5)")
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="random seed (default 0)")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.corpus.judge_training import JudgeLearning, learn

    *sources, out = args.files
    if not sources:
        raise RecipeError("corpus judge", f"found one name, {out}", "FILE... OUT")
    names = ("text", "label", "pattern", "most", "dev", "bits", "epochs", "seed")
    print_lines(learn(sources, out, JudgeLearning(**{name: getattr(args, name) for name in names}), anew=args.anew))
