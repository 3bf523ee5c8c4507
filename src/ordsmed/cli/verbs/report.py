"""write a page about runs: losses, scores, recipes, cost; also as Markdown and JSON, live, or sent to a tracker"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import FILES, Parser, UsageError, whole
from ordsmed.base.screen import command_lines
from ordsmed.cli.next_steps import opened_in_browser
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 2)


def arguments(parser: Parser) -> None:
    meaning = "runs, folders with runs, or results of `bench`: its folder, NAME.json, measurements.jsonl"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--out", metavar="FILE", help="the page (report.html)", offers=lambda: [FILES])
    meaning = "write it as Markdown, with a statement on data and compute"
    parser.add_argument("--markdown", metavar="FILE", help=meaning, offers=lambda: [FILES])
    meaning = "write all its numbers and curves"
    parser.add_argument("--json", metavar="FILE", help=meaning, offers=lambda: [FILES])
    meaning = "power of a device in watts, for the energy"
    parser.add_argument("--watts", type=whole(1), default=0, metavar="W", help=meaning)
    parser.add_argument("--title", metavar="TEXT", default="", help="title of the page (default: the run's name)")
    parser.add_argument("--author", metavar="NAME", default="", help="author to print under the title")
    meaning = "serve it on this machine during the runs; Ctrl-C ends"
    parser.add_argument("--watch", action="store_true", help=meaning)
    parser.add_argument("--port", type=whole(1, 65535), metavar="N", help="with --watch: port (default: a free one)")
    meaning = "send runs to a tracker instead, including running ones"
    parser.add_argument("--to", metavar="TRACKER", help=meaning, offers=lambda: menu.entries("trackers"))
    parser.add_argument("--project", metavar="NAME", default="ordsmed", help="with --to: project (ordsmed)")
    meaning = "with --to: write files here, to be sent later or viewed locally"
    parser.add_argument("--offline", metavar="FOLDER", help=meaning, offers=lambda: [FILES])


def run(args: argparse.Namespace) -> None:
    if args.port and not args.watch:
        raise UsageError("report", "--port without --watch", "both, or neither", "add --watch")
    written = args.out or args.markdown or args.json
    if args.to and (args.watch or written):
        wanted = "--to alone, with --project and --offline"
        raise UsageError("report", "--to with an output or --watch", wanted, "give two commands")
    if args.offline and not args.to:
        raise UsageError("report", "--offline without --to", "both, or neither", "name a tracker with --to")
    if args.to:
        from ordsmed.tell.report import send

        print_lines(send.send(args.folders, args.to, project=args.project, offline=args.offline))
        return
    if args.watch and written:
        raise UsageError("report", "--watch writes no file", "--watch alone", "leave out --out, --markdown and --json")
    if args.watch:
        from ordsmed.tell.report import live

        live.watch(args.folders, port=args.port or 0, watts=args.watts)
        return
    from ordsmed.tell.report import report

    files = {"out": args.out, "markdown": args.markdown, "json": args.json}
    options = {"watts": args.watts, "title": args.title, "author": args.author}
    print_lines(report.write(args.folders, **files, **options).lines)
    if args.out or not written:
        print_lines(command_lines("next", opened_in_browser(args.out or report.USUAL)))
