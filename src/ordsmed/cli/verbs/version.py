"""which version this is"""

from __future__ import annotations

import argparse

from ordsmed import __version__
from ordsmed.base.arguments import Parser
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 9)


def arguments(parser: Parser) -> None:
    """None."""


def run(args: argparse.Namespace) -> None:
    print_lines([f"ordsmed {__version__}"])
