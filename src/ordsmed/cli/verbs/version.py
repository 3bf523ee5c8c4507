"""print the version with its commit and a digest of its code"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("inspect", 9)


def arguments(parser: Parser) -> None:
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from ordsmed.base.identity import PACKAGE, identity

    code = identity()
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    facts = {
        "identity": str(code),
        **asdict(code),
        "python": platform.python_version(),
        "torch": torch,
        "package": str(PACKAGE),
    }
    print_or_json(facts, [f"ordsmed {code}, code {code.digest}"], args)
