"""write a machine's file from what its Slurm and modules say, to be checked by you"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli.output import print_lines

PLACE = ("machines", 2)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="what to call it: NAME.toml is written here")


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.launch.new_site import write
    from ordsmed.base.screen import command, command_lines

    path = write(args.name)
    title = f"{path}: written; read it, mend it, name its sources"
    print_lines([title, *command_lines("next", command("sites", path))])
