"""compare the file of a site with this machine: what Slurm, accounts and modules report differently

On a login node it runs sinfo, sacctmgr, module and `sbatch --test-only`; nothing is queued or written. The exit status
is 1 if anything differs from the file.
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
    parser.add_argument("name", metavar="SITE", help="a known site, or a TOML file", offers=offers)
    meaning = "account to charge; if the site requires one, jobs are only tested with it"
    parser.add_argument("--account", default="", metavar="NAME", help=meaning)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.machines.sites import compare

    report = compare.compare(args.name, args.account)
    print_or_json(report, compare.lines(report), args)
    sys.exit(bool(report["differs"]))
