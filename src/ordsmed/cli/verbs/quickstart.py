"""run `make` on the documentation of this Python, for a first model in a few minutes"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.cli.output import print_lines

PLACE = ("train", 1)
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    """Add no arguments."""


def run(args: argparse.Namespace) -> None:
    from ordsmed.maker.make import make

    print_lines(make("stdlib", "work/quickstart", hours=0.05).lines)
