"""download published data: dumps, books, URL lists, SQuAD, GLUE ...; without a name: list all"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import FILES, Parser
from ordsmed.base.ending import GOES_ON
from ordsmed.cli.output import print_lines

PLACE = ("make", 1)
STOPPED = GOES_ON
HOW = ("mirror", "allow_missing", "private", "timeout", "slowest", "attempts")


def arguments(parser: Parser) -> None:
    meaning = "built-in names, or your own TOML files"
    parser.add_argument("names", nargs="*", metavar="NAME", help=meaning, offers=shipped)
    parser.add_argument("--out", default="work/fetch", help="output folder, with a folder per name (work/fetch)")
    parser.add_argument("--mirror", metavar="FOLDER|URL", help="source of NAME/FILE instead of the original addresses")
    parser.add_argument("--allow-missing", action="store_true", help="skip and count files that cannot be downloaded")
    parser.add_argument("--private", action="store_true", help="allow addresses of private networks")
    meaning = "timeout for an answer and for each next piece of it (20)"
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS", help=meaning)
    meaning = "stop downloads with fewer bytes per second (1000)"
    parser.add_argument("--slowest", type=int, default=1000, metavar="BYTES", help=meaning)
    meaning = "tries per file; each MB received resets them (3)"
    parser.add_argument("--attempts", type=int, default=3, metavar="N", help=meaning)


def shipped() -> list[str]:
    return [*sorted(path.stem for path in (menu.PACKAGE_ROOT / "recipes" / "fetch").glob("*.toml")), FILES]


def run(args: argparse.Namespace) -> None:
    from ordsmed.web.fetch import fetch
    from ordsmed.web.fetch_tables import listing

    if args.names:
        print_lines(fetch(args.names, out=args.out, **{name: getattr(args, name) for name in HOW}))
    else:
        print_lines(listing())
