"""write a folder for other programs (transformers; for an ELMo simple_elmo, AllenNLP), with a model card"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.cli import flags
from ordsmed.cli.next_steps import tell_next
from ordsmed.cli.output import print_lines

PLACE = ("use", 3)
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    parser.add_argument("out", metavar="FOLDER", help="where to write")
    meaning = "the checkpoint of this step, 0 included; all: a folder per checkpoint"
    parser.add_argument("--step", type=flags.step_or_all, metavar="N|all", help=meaning)
    meaning = "one of `ordsmed menus formats` (default: Hugging Face's, or ELMo's)"
    parser.add_argument("--to", metavar="FORMAT", help=meaning, offers=lambda: menu.entries("formats"))
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of that format")
    flags.card(parser, "license of the model, for its card")
    flags.anew(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.making import export

    card = {key: getattr(args, key) for key in ("title", "language", "licence")}
    options = {"anew": args.anew, "to": args.to, "overrides": args.set, **card}
    print_lines(export(args.run, args.out, step=args.step, **options).lines)
    tell_next(args.out)
