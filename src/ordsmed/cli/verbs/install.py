"""Ordsmed on a machine, in the way its site takes software: written, and with --yes done; or a bundle of wheels"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 3)
FLAVORS = ("venv", "module", "tykky", "apptainer", "docker", "easybuild")


def arguments(parser: Parser) -> None:
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help="see `sites`", offers=flags.sites)
    meaning = f"{', '.join(FLAVORS)}; left out: as the site does"
    parser.add_argument("--by", metavar="WAY", default="", help=meaning, offers=lambda: list(FLAVORS))
    meaning = "where software goes; left out: work/software/SITE"
    parser.add_argument("--prefix", metavar="FOLDER", default="", help=meaning)
    meaning = "in place of the site's; more than once"
    parser.add_argument("--module", metavar="NAME", action="append", default=[], help=meaning)
    parser.add_argument("--image", metavar="NAME", default="", help="that holds PyTorch, for apptainer and docker")
    parser.add_argument("--extras", metavar="A,B", default="", help="optional parts: parquet, corpora, ...")
    parser.add_argument("--python", metavar="3.12", default="", help="left out: python3 of the machine")
    meaning = "a checkout or wheel of ordsmed; left out: this one"
    parser.add_argument("--source", metavar="PATH", default="", help=meaning)
    meaning = "collect wheels for the site here; nothing is installed"
    parser.add_argument("--bundle", metavar="FOLDER", default="", help=meaning)
    meaning = "install from such a bundle, without a network"
    parser.add_argument("--from", metavar="FOLDER", dest="collected", default="", help=meaning)
    meaning = "scripts; left out: work/install/SITE-WAY"
    parser.add_argument("--out", metavar="FOLDER", default="", help=meaning)
    parser.add_argument("--yes", action="store_true", help="do it; without, it is written only")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from ordsmed.base.arguments import UsageError
    from ordsmed.base.screen import command
    from ordsmed.machines.install import bundle, make, plan

    if not args.site:
        raise UsageError("install", "no --site", "`ordsmed install --site SITE`", "`ordsmed sites` lists them")
    words = command(*args.words)
    wish = plan.InstallWish(
        site=args.site, flavor=args.by, prefix=args.prefix, modules=tuple(args.module), image=args.image,
        source=args.source, extras=tuple(filter(None, args.extras.split(","))), bundle=args.collected,
        python=args.python, out=args.out,
    )  # fmt: skip
    work = plan.decide(wish, words)
    if args.bundle:
        facts = bundle.collect(work, Path(args.bundle))
        after = command("install", "--site", args.site, "--from", args.bundle)
        print_or_json(facts, [*bundle.lines(facts, Path(args.bundle)), f"next, there: {after}"], args)
        return
    written = make.write(work)
    if not args.json:
        print_lines(make.lines(work))
    last = make.carry_out(work) if args.yes else ""
    if args.json:
        print_or_json({"files": list(map(str, written)), "prefix": str(work.prefix), "done": last}, [], args)
    elif not args.yes:
        print_lines([f"next: {command(*args.words, '--yes')}, or bash {make.SCRIPT} there"])
