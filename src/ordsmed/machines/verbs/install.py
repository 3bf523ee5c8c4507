"""install ordsmed on a machine as its site requires: write scripts, or with --yes run them; or collect wheels

ordsmed install --site saga --prefix P --yes             next to other installations in P
ordsmed install --list --prefix P                        list them: when, from what, by whom
ordsmed install --default 0.3.0 --prefix P               validate this one, then make it the default of all users
ordsmed install --rollback --prefix P                    return to the previous default
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 3)
FLAVORS = ("venv", "module", "eessi", "tykky", "apptainer", "overlay", "docker", "easybuild")


def arguments(parser: Parser) -> None:
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help="see `sites`", offers=flags.sites)
    meaning = f"{', '.join(FLAVORS)} (default: that of the site)"
    parser.add_argument("--by", metavar="WAY", default="", help=meaning, offers=lambda: list(FLAVORS))
    meaning = "folder of installations (default: work/software/SITE)"
    parser.add_argument("--prefix", metavar="FOLDER", default="", help=meaning)
    meaning = "module to load, instead of the site's; may be given several times"
    parser.add_argument("--module", metavar="NAME", action="append", default=[], help=meaning)
    meaning = "image with PyTorch, for apptainer, overlay and docker"
    parser.add_argument("--image", metavar="NAME", default="", help=meaning)
    parser.add_argument("--extras", metavar="A,B", default="", help="optional parts: parquet, corpora, ...")
    parser.add_argument(
        "--python", metavar="3.12", default="", help="version of Python (default: the machine's python3)"
    )
    meaning = "a checkout or wheel of ordsmed (default: this one)"
    parser.add_argument("--source", metavar="PATH", default="", help=meaning)
    meaning = "collect wheels for the site here; nothing is installed"
    parser.add_argument("--bundle", metavar="FOLDER", default="", help=meaning)
    meaning = "install from such a bundle, without a network"
    parser.add_argument("--from", metavar="FOLDER", dest="collected", default="", help=meaning)
    meaning = "folder of scripts (default: work/install/SITE-WAY)"
    parser.add_argument("--out", metavar="FOLDER", default="", help=meaning)
    parser.add_argument("--yes", action="store_true", help="run the scripts; without it they are only written")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--list", action="store_true", help="what is installed below --prefix, and which is the default")
    meaning = "validate what is installed below --prefix, then make it the default"
    only.add_argument("--default", metavar="VERSION", default="", help=meaning)
    only.add_argument("--rollback", action="store_true", help="make the default before this one the default again")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from ordsmed.base.arguments import UsageError

    if args.list or args.default or args.rollback:
        _side_by_side(args)
        return
    from ordsmed.base.screen import command, command_lines
    from ordsmed.machines.install import bundle, make, plan

    if not args.site:
        raise UsageError("install", "no --site", "`ordsmed install --site SITE`", "`ordsmed sites` lists them")
    words = command(*args.words)
    wish = plan.InstallWish(
        site=args.site,
        flavor=args.by,
        prefix=args.prefix,
        modules=tuple(args.module),
        image=args.image,
        source=args.source,
        extras=tuple(filter(None, args.extras.split(","))),
        bundle=args.collected,
        python=args.python,
        out=args.out,
    )
    work = plan.decide(wish, words)
    if args.bundle:
        facts = bundle.collect(work, Path(args.bundle))
        after = command_lines("next, there", command("install", "--site", args.site, "--from", args.bundle))
        print_or_json(facts, [*bundle.lines(facts, Path(args.bundle)), *after], args)
        return
    written = make.write(work)
    if not args.json:
        print_lines(make.lines(work))
    last = make.run_script(work) if args.yes else ""
    if args.json:
        print_or_json({"files": list(map(str, written)), "prefix": str(work.prefix), "done": last}, [], args)
    elif not args.yes:
        print_lines(command_lines(f"next (or run {make.SCRIPT} there)", command(*args.words, "--yes")))
    else:
        print_lines(command_lines("next", command("install", "--default", work.name, "--prefix", work.prefix)))


SHARED = ("--prefix", "--json", "--list", "--default", "--rollback")  # flags for existing installations


def _side_by_side(args: argparse.Namespace) -> None:
    """List the installations below a prefix, or change the default one."""
    from pathlib import Path

    from ordsmed.base.arguments import UsageError
    from ordsmed.base.screen import command
    from ordsmed.machines.install import default, records

    flag = "--list" if args.list else "--default" if args.default else "--rollback"
    flags_given = [word.partition("=")[0] for word in args.words if word.startswith("--")]
    if foreign := next((word for word in flags_given if word not in SHARED), None):
        raise UsageError("install", f"{foreign} with {flag}", "one of them", "installing is a separate command")
    if not args.prefix:
        raise UsageError("install", f"{flag} without --prefix", f"`{command('install', flag, '--prefix', 'FOLDER')}`")
    prefix = Path(args.prefix).expanduser().absolute()
    if args.list:
        facts = records.facts(prefix)
        print_or_json(facts, records.lines(facts), args)
        return
    show = (lambda line: None) if args.json else (lambda line: print(line, flush=True))
    facts = default.change(prefix, args.default, show) if args.default else default.roll_back(prefix)
    before = f" (before: {facts['before']})" if facts["before"] else ""
    title = f"{prefix / records.DEFAULT} is now {facts['default']}{before}"
    print_or_json(facts, [title, f"validated: {facts['report']}"], args)
