"""a script by which bash, zsh or fish completes verbs, flags, recipes and files: source <(ordsmed completion bash)"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.command import completion

PLACE = ("look", 4)


def arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=completion.SHELLS, metavar="SHELL", help=" ".join(completion.SHELLS))


def run(asked: argparse.Namespace) -> None:
    print(completion.script(asked.shell), end="")
