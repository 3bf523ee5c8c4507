"""measure: training steps, the loader, encoding, the index map"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import BEGINS_AGAIN
from ordsmed.command import flags

PLACE = ("judge", 3)
RECIPE = "ordsmed.bench.bench:Bench"
STOPPED = BEGINS_AGAIN


def arguments(parser: Parser) -> None:
    flags.recipe(parser)
    flags.json_line(parser)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.bench.bench import bench
    from ordsmed.train.loop import Stopped

    try:
        for line in bench(asked.name, asked.overrides, json_line=asked.json):
            print(line)
    except Stopped as stopped:
        sys.exit(128 + stopped.by)
