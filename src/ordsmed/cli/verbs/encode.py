"""encode a corpus as token ids on disk"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.recipes import make

PLACE = ("make", 5)
RECIPE = "ordsmed.data.encode:Encoding"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    flags.recipe(parser)
    flags.anew(parser)
    flags.verbose(parser)
    flags.cache(parser)


def run(args: argparse.Namespace) -> None:
    make(menu.recipe_class("encode"), args)
