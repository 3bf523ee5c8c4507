"""one fixed list on every machine: tokens, rows and losses to the number, runs that are killed, layouts, speeds

    ordsmed validate --out work/validate                     report.json, junit.xml and report.md in that folder
    srun -N2 --ntasks-per-node=4 ordsmed validate --site olivia
    ordsmed validate --compare work/march work/april         what is red that was green, or slower
    ordsmed validate --reframe work/reframe --site saga      a ReFrame test at 1, 2, 4 and 16 nodes, and the site's file
Exit status 1 where anything is wrong, or has become so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ordsmed.base.arguments import Parser, UsageError, whole
from ordsmed.base.say import many
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("machines", 4)


def arguments(parser: Parser) -> None:
    meaning = "of the report (default work/validate)"
    parser.add_argument("--out", metavar="FOLDER", default="work/validate", help=meaning)
    parser.add_argument("--quick", action="store_true", help="two losses of each family in place of ten")
    meaning = "so many processes here, one a GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.device(parser)
    meaning = "whose name stands in the report (see `sites`)"
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help=meaning, offers=flags.sites)
    meaning = "that a rank may keep the others waiting (default 60)"
    parser.add_argument("--patience", type=whole(1), metavar="SECONDS", default=60, help=meaning)
    parser.add_argument("--compare", nargs=2, metavar="REPORT", help="an older one and a newer one, by their folders")
    meaning = "with --compare: per cent that a figure may be slower (default 20)"
    parser.add_argument("--slower", type=whole(1, 99), metavar="N", default=20, help=meaning)
    parser.add_argument("--reframe", metavar="FOLDER", default="", help="write files for ReFrame there, ask nothing")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    if args.compare:
        _compare(args)
        return
    if args.reframe:
        _reframe(args)
        return
    if args.devices and "RANK" not in os.environ:
        from ordsmed.base.launch.local import start
        from ordsmed.cli.recipes import without

        sys.exit(start(without(args.words, "--devices"), args.devices))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a lost rank is told in a line, not in the others' stacks
    from ordsmed.cli.output import speaks
    from ordsmed.machines.suite import report
    from ordsmed.machines.suite.validate import validate

    def show(row: dict[str, Any]) -> None:
        if not args.json:
            text = "; ".join(filter(None, (row["text"], row["remedy"] if row["state"] == "error" else "")))
            where = f"{row['node']}: " if row["state"] == "error" and row["node"] else ""
            shown = ", ".join(filter(None, (where + text, report.figures(row))))
            print_lines([f"{row['state']:<7} {row['item']:<11}  {row['case']:<24}  {shown}"])
            sys.stdout.flush()

    out = Path(args.out)
    done = validate(out, device=args.device, site=args.site, quick=args.quick, patience=args.patience, show=show)
    counts = report.count(done)
    if speaks():
        summary = f"{counts['ok']} ok, {counts['error']} wrong, {counts['absent']} absent"
        print_lines([json.dumps(done)] if args.json else [summary, f"{out / report.PAGE}: the report"])
    sys.exit(counts["error"] > 0)


def _compare(args: argparse.Namespace) -> None:
    from ordsmed.machines.suite import report

    old, new = map(report.read, args.compare)
    lines = report.regressions(old, new, args.slower / 100)
    facts = list(report.differences(old, new))
    if args.json:
        print(json.dumps({"regressions": lines, "differences": facts}))
    else:
        print_lines([*(f"differs  {line}" for line in facts), *(f"worse    {line}" for line in lines)])
        print_lines([f"{len(lines)} worse, of {many(len(old['items']), 'case')}"])
    sys.exit(bool(lines))


def _reframe(args: argparse.Namespace) -> None:
    if os.path.exists(args.reframe) and not os.path.isdir(args.reframe):
        raise UsageError("--reframe", f"found {args.reframe}, which is a file", "a folder")
    from ordsmed.base.launch.site import find
    from ordsmed.machines.suite.reframe import CONFIGURATION, TEST, write

    folder = Path(args.reframe)
    paths = write(folder, find(args.site) if args.site else None)
    print_lines(
        [*(f"{path}: written" for path in paths), f"next: reframe -C {folder / CONFIGURATION} -c {folder / TEST} -l"]
    )
