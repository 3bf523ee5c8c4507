"""run one fixed list of checks on every machine: tokens, rows and exact losses, killed runs, layouts, speeds

    ordsmed validate --out work/validate                     writes report.json, junit.xml and report.md
    srun -N2 --ntasks-per-node=4 ordsmed validate --site olivia
    ordsmed validate --compare work/march work/april         what fails that passed before, or is slower
    ordsmed validate --collect reports --page systems.html   all reports: systems, versions, dates, changes
    ordsmed validate --reframe work/reframe --site saga --site lumi      a ReFrame test at 1, 2, 4 and 16 nodes
The exit status is 1 if a check fails, or fails now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from ordsmed.base import files
from ordsmed.base.arguments import FILES, Parser, UsageError, whole
from ordsmed.base.say import many, say
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("machines", 4)


def arguments(parser: Parser) -> None:
    meaning = "folder of the report (default work/validate)"
    parser.add_argument("--out", metavar="FOLDER", default="work/validate", help=meaning)
    parser.add_argument("--quick", action="store_true", help="check two losses of each family instead of ten")
    meaning = "number of processes to start here, one per GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.device(parser)
    meaning = "name of the site for the report (see `sites`); with --reframe once per system"
    parser.add_argument(
        "--site", metavar="SITE[:PARTITION]", action="append", default=[], help=meaning, offers=flags.sites
    )
    meaning = "time that a rank may let the others wait (default 60)"
    parser.add_argument("--patience", type=whole(1), metavar="SECONDS", default=60, help=meaning)
    parser.add_argument("--compare", nargs=2, metavar="REPORT", help="folders of an older and a newer report")
    meaning = "one table of all reports in and below these folders: systems, versions, dates, changes"
    parser.add_argument("--collect", nargs="+", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--markdown", action="store_true", help="with --collect: as Markdown")
    meaning = "with --collect: write it as a page as well"
    parser.add_argument("--page", metavar="FILE", help=meaning, offers=lambda: [FILES])
    meaning = "with --compare and --collect: tolerance of speeds in per cent (default 20)"
    parser.add_argument("--slower", type=whole(1, 99), metavar="N", default=20, help=meaning)
    parser.add_argument("--reframe", metavar="FOLDER", default="", help="write files for ReFrame there, check nothing")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    _refuse(args)
    if args.collect:
        _collect(args)
        return
    if args.compare:
        _compare(args)
        return
    if args.reframe:
        _reframe(args)
        return
    if args.devices and "RANK" not in os.environ:
        from ordsmed.cli.recipes import run_in_processes

        run_in_processes(args)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # suppress stack traces of other ranks if a rank is lost
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
    site = "".join(args.site)
    done = validate(out, device=args.device, site=site, quick=args.quick, patience=args.patience, show=show)
    counts = report.count(done)
    if speaks():
        summary = f"{counts['ok']} ok, {counts['error']} wrong, {counts['absent']} absent"
        print_lines([json.dumps(done)] if args.json else [summary, f"{out / report.PAGE}: the report"])
    sys.exit(counts["error"] > 0)


def _refuse(args: argparse.Namespace) -> None:
    actions = [name for name in ("collect", "compare", "reframe") if getattr(args, name)]
    if actions[1:]:
        raise UsageError("validate", f"--{actions[0]} and --{actions[1]}", "one of them", "give two commands")
    if args.site[1:] and not args.reframe:
        problem = f"found {len(args.site)} sites, of one machine"
        raise UsageError("--site", problem, "one site", "several need --reframe")
    for name in ("quick", "devices", "site") if args.collect else ():
        if getattr(args, name):
            raise UsageError(f"--{name}", "found with --collect, which runs nothing", "one of them", "leave it out")
    for name in ("markdown", "page"):
        if getattr(args, name) and not args.collect:
            raise UsageError(f"--{name}", "found without --collect", "both, or neither", "name folders of reports")
    if args.markdown and args.json:
        raise UsageError("validate", "--markdown and --json", "one of them", "give two commands")


def _collect(args: argparse.Namespace) -> None:
    from ordsmed.machines.suite.collect import RED, facts

    table = facts(args.collect, args.slower / 100)
    if args.json:
        print(json.dumps(table))
    else:
        from ordsmed.machines.suite import collect_page

        print_lines(collect_page.markdown(table).splitlines() if args.markdown else collect_page.lines(table))
    if args.page:
        from ordsmed.machines.suite import collect_page

        with files.survive_disk(Path(args.page)):
            Path(args.page).parent.mkdir(parents=True, exist_ok=True)
        files.write_text(Path(args.page), collect_page.html_page(table))
        say(f"{args.page}: the page")
    sys.exit(any(change["newest"] and change["kind"] in RED for change in table["changes"]))


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
    from ordsmed.base.launch.site import Destination
    from ordsmed.base.screen import command_lines, shell_command
    from ordsmed.machines.suite.reframe import CONFIGURATION, TEST, write

    folder = Path(args.reframe)
    paths = write(folder, [Destination.find(site) for site in args.site])
    system = ["--system", "NAME"] if args.site[1:] else []
    first = shell_command("reframe", "-C", folder / CONFIGURATION, "-c", folder / TEST, *system, "-l")
    print_lines([*(f"{path}: written" for path in paths), *command_lines("next", first)])
