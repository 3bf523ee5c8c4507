"""check this machine before a long job: what is ok, a warning or an error, each with a remedy

With --devices, or under srun or torchrun, compare all machines, and verify the results of all-reduce:
    srun -N2 --ntasks-per-node=4 ordsmed doctor --site olivia
The exit status is 1 if there is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from ordsmed.base.arguments import Parser, whole
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("machines", 3)


def arguments(parser: Parser) -> None:
    meaning = "compare with the known facts of this site (see `sites`)"
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help=meaning, offers=flags.sites)
    meaning = "number of processes to start here, one per GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.device(parser)
    parser.add_argument("--account", metavar="NAME", default="", help="account to charge (default: that of Slurm)")
    meaning = "time that a rank may let the others wait (default 60)"
    parser.add_argument("--patience", type=whole(1), metavar="SECONDS", default=60, help=meaning)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    if args.devices and "RANK" not in os.environ:
        from ordsmed.cli.recipes import run_in_processes

        run_in_processes(args)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # suppress stack traces of other ranks if a rank is lost
    from ordsmed.machines.doctor.doctor import doctor
    from ordsmed.machines.doctor.outcome import Outcome

    def show(outcome: Outcome) -> None:
        if not args.json:
            print_lines([f"{outcome.state:<8} {outcome.check:<12}  {outcome.words}"])
            sys.stdout.flush()

    def ending(report: dict[str, Any]) -> None:
        count = [sum(check["state"] == state for check in report["checks"]) for state in ("ok", "warning", "error")]
        print(json.dumps(report) if args.json else "{} ok, {} warnings, {} errors".format(*count), flush=True)

    state = doctor(
        site=args.site, device=args.device, account=args.account, patience=args.patience, show=show, ending=ending
    )
    sys.exit(state == "error")
