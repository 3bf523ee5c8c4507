"""a site's file against the machine one stands on: what Slurm, accounts and modules say otherwise

On a login node: asks sinfo, sacctmgr, module and `sbatch --test-only`; nothing is queued or written.
Exit status 1 where anything differs from the file.
"""

from __future__ import annotations

import argparse
import sys

from ordsmed.base.arguments import FILES, Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("machines", 2)


def arguments(parser: Parser) -> None:
    offers = lambda: [*flags.sites(), FILES]  # noqa: E731
    parser.add_argument("name", metavar="SITE", help="one that is known, or a TOML file", offers=offers)
    meaning = "who pays; where the site asks for one, jobs are tested with it alone"
    parser.add_argument("--account", default="", metavar="NAME", help=meaning)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.launch import compare

    report = compare.compare(args.name, args.account)
    print_or_json(report, compare.lines(report), args)
    sys.exit(bool(report["differs"]))
