"""get published data: dumps, book and URL lists, SQuAD, GLUE ...; without a name: what there is"""

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
    meaning = "built-in names, or TOML files of your own"
    parser.add_argument("names", nargs="*", metavar="NAME", help=meaning, offers=shipped)
    parser.add_argument("--out", default="work/fetch", help="where to; a folder a name (default work/fetch)")
    parser.add_argument("--mirror", metavar="FOLDER|URL", help="where NAME/FILE lies, instead of the addresses")
    parser.add_argument("--allow-missing", action="store_true", help="leave out and count what cannot be had")
    parser.add_argument("--private", action="store_true", help="addresses of private networks are allowed")
    meaning = "for an answer and each next piece (20)"
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS", help=meaning)
    meaning = "a second; slower servers are given up (1000)"
    parser.add_argument("--slowest", type=int, default=1000, metavar="BYTES", help=meaning)
    meaning = "tries of a file; a MB earns new ones (3)"
    parser.add_argument("--attempts", type=int, default=3, metavar="N", help=meaning)


def shipped() -> list[str]:
    """The names of what can be had, and files."""
    return [*sorted(path.stem for path in (menu.HOUSE / "recipes" / "fetch").glob("*.toml")), FILES]


def run(args: argparse.Namespace) -> None:
    from ordsmed.web.fetch import fetch
    from ordsmed.web.fetch_tables import listing

    if args.names:
        print_lines(fetch(args.names, out=args.out, **{name: getattr(args, name) for name in HOW}))
    else:
        print_lines(listing())
