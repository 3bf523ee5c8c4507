"""measure speed: training steps, tables of them, the loader, encoding, the index map, a served model"""

from __future__ import annotations

import argparse
from pathlib import Path

from ordsmed.base.arguments import Parser, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.base.say import say
from ordsmed.cli import flags

PLACE = ("evaluate", 3)
RECIPE = "ordsmed.measure.bench.recipe:Bench"
STOPPED = GOES_ON  # a table resumes; a single measurement starts again


def arguments(parser: Parser) -> None:
    flags.recipe(parser)
    flags.json_line(parser)
    meaning = "profile four further steps (profile=4)"
    parser.add_argument("--profile", action="store_true", help=meaning)
    meaning = "alternate with the same steps of this library (beside=transformers)"
    parser.add_argument("--beside", choices=["transformers"], help=meaning)
    meaning = "add measurements to this file (keep=FILE), not work/bench/measurements.jsonl"
    parser.add_argument("--keep", metavar="FILE", help=meaning)
    meaning = "for `bench serve`: a model that is already served, such as http://host:8000/name (url=URL)"
    parser.add_argument("--url", metavar="URL", help=meaning)
    parser.add_argument("--devices", type=whole(1), metavar="N", help="processes, one per GPU (devices=N)")


def run(args: argparse.Namespace) -> None:
    from ordsmed.measure.bench.bench import bench

    words = ["profile=4"] if args.profile else []
    words += [f"{name}={value}" for name in ("beside", "keep", "url", "devices") if (value := getattr(args, name))]
    for line in bench(args.name, [*args.overrides, *words], json_line=args.json, left=_page):
        print(line)


def _page(table: Path) -> None:
    from ordsmed.tell.report import report

    report.write([str(table)], out=str(page := table.with_suffix(".html")))
    say(f"{page}: the table as a page; {table.with_suffix('.md').name} and {table.name} are next to it")
