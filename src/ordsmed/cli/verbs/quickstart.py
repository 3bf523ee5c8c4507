"""from the documentation of this Python to a small BERT that fills masks, in a few minutes"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.base.ending import GOES_ON

PLACE = ("train", 1)
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    """None."""


def run(args: argparse.Namespace) -> None:
    from ordsmed.api.training import pretrain
    from ordsmed.use.quickstart import quickstart

    quickstart(lambda name: pretrain(name).folder)
