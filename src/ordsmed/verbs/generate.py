"""a causal model goes on with a text, or with each line of standard input; an empty one it begins itself"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser, number, whole
from ordsmed.command import flags

PLACE = ("use", 1)
WAY = ("tokens", "temperature", "best", "share", "seed")


def arguments(parser: Parser) -> None:
    flags.any_model(parser)
    meaning = "texts to go on with; none: lines of standard input"
    parser.add_argument("text", nargs="*", metavar="TEXT", help=meaning)
    meaning = "at most so many new ones (default 40)"
    parser.add_argument("--tokens", type=whole(1), metavar="N", default=40, help=meaning)
    meaning = "0: always the likeliest token (default 1)"
    parser.add_argument("--temperature", type=number, metavar="X", default=1.0, help=meaning)
    meaning = "draw among so many of the likeliest (0: all)"
    parser.add_argument("--best", type=whole(0), metavar="N", default=0, help=meaning)
    meaning = "draw among the likeliest with this share together"
    parser.add_argument("--share", type=number, metavar="X", default=1.0, help=meaning)
    parser.add_argument("--seed", type=whole(0), metavar="N", default=0, help="of the draws (default 0)")
    flags.any_step(parser)
    flags.threads(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.apply.fill import lines
    from ordsmed.apply.generate import SamplingOptions
    from ordsmed.apply.model import open

    SamplingOptions(**(way := {name: getattr(asked, name) for name in WAY}))  # refused before a model is opened
    model = open(asked.run, step=asked.step, device="cpu", threads=asked.threads)
    model.check("generate")  # before anybody types a line
    for prompt in asked.text or lines(sys.stdin.buffer):
        print(model.generate(prompt, **way).text, flush=True)
