"""write the file of a site from what Slurm and the modules of this machine report, for you to check"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli.output import print_lines

PLACE = ("machines", 2)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="its name: NAME.toml is written to the current folder")


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.screen import command, command_lines
    from ordsmed.machines.sites.new_site import write

    path = write(args.name)
    title = f"{path}: written; check it, correct it, name its sources"
    print_lines([title, *command_lines("next", command("sites", path))])
