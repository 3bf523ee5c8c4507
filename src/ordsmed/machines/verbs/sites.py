"""list the known machines: state, GPUs, jobs, software; with a name: all facts of one"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 1)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="SITE", help="a known site, or a TOML file", offers=flags.sites)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.machines.sites import describe

    if args.name:
        print_or_json(describe.facts(args.name), describe.lines(args.name), args)
    elif args.json:
        print_or_json(describe.all_facts(), [], args)
    else:
        print_lines(describe.overview())
