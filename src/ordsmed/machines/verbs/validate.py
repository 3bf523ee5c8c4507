"""one fixed list on every machine: tokens, rows and losses to the number, runs that are killed, layouts, speeds

    ordsmed validate --out work/validate                     report.json, junit.xml and report.md in that folder
    srun -N2 --ntasks-per-node=4 ordsmed validate --site olivia
    ordsmed validate --compare work/march work/april         what is red that was green, or slower
    ordsmed validate --collect reports --page systems.html   all reports below: systems, versions, dates, what changed
    ordsmed validate --reframe work/reframe --site saga --site lumi      a ReFrame test at 1, 2, 4 and 16 nodes
Exit status 1 where anything is wrong, or has become so.
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
    meaning = "of the report (default work/validate)"
    parser.add_argument("--out", metavar="FOLDER", default="work/validate", help=meaning)
    parser.add_argument("--quick", action="store_true", help="two losses of each family in place of ten")
    meaning = "so many processes here, one a GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    flags.device(parser)
    meaning = "whose name stands in the report (see `sites`)"
    meaning += "; with --reframe as often as there are systems"
    parser.add_argument(
        "--site", metavar="SITE[:PARTITION]", action="append", default=[], help=meaning, offers=flags.sites
    )
    meaning = "that a rank may keep the others waiting (default 60)"
    parser.add_argument("--patience", type=whole(1), metavar="SECONDS", default=60, help=meaning)
    parser.add_argument("--compare", nargs=2, metavar="REPORT", help="an older one and a newer one, by their folders")
    meaning = "one table of all reports in these folders, or below: systems, versions, dates, and what changed"
    parser.add_argument("--collect", nargs="+", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--markdown", action="store_true", help="with --collect: as Markdown")
    parser.add_argument(
        "--page", metavar="FILE", help="with --collect: write it as a page, too", offers=lambda: [FILES]
    )
    meaning = "with --compare and --collect: per cent that a figure may be slower (default 20)"
    parser.add_argument("--slower", type=whole(1, 99), metavar="N", default=20, help=meaning)
    parser.add_argument("--reframe", metavar="FOLDER", default="", help="write files for ReFrame there, ask nothing")
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
    site = "".join(args.site)
    done = validate(out, device=args.device, site=site, quick=args.quick, patience=args.patience, show=show)
    counts = report.count(done)
    if speaks():
        summary = f"{counts['ok']} ok, {counts['error']} wrong, {counts['absent']} absent"
        print_lines([json.dumps(done)] if args.json else [summary, f"{out / report.PAGE}: the report"])
    sys.exit(counts["error"] > 0)


def _refuse(args: argparse.Namespace) -> None:
    """Flags that do not go together."""
    deeds = [name for name in ("collect", "compare", "reframe") if getattr(args, name)]
    if deeds[1:]:
        raise UsageError("validate", f"--{deeds[0]} and --{deeds[1]}", "one of them", "give two commands")
    if args.site[1:] and not args.reframe:
        problem = f"found {len(args.site)} sites, of one machine"
        raise UsageError("--site", problem, "one", "several are for --reframe")
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
    from ordsmed.base.launch.site import find
    from ordsmed.base.screen import command_lines, shell_command
    from ordsmed.machines.suite.reframe import CONFIGURATION, TEST, write

    folder = Path(args.reframe)
    paths = write(folder, [find(site) for site in args.site])
    system = ["--system", "NAME"] if args.site[1:] else []
    first = shell_command("reframe", "-C", folder / CONFIGURATION, "-c", folder / TEST, *system, "-l")
    print_lines([*(f"{path}: written" for path in paths), *command_lines("next", first)])
