"""one page about runs: losses, scores, recipes, cost; also as Markdown and JSON, live, or sent to a tracker"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser
from ordsmed.command.output import print_lines

PLACE = ("look", 2)
USUAL = "report.html"


def arguments(parser: Parser) -> None:
    meaning = "runs, or folders that hold runs"
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    parser.add_argument("--out", metavar="FILE", help=f"the page ({USUAL})", offers=lambda: [FILES])
    meaning = "write it as Markdown, with a statement of data and compute"
    parser.add_argument("--markdown", metavar="FILE", help=meaning, offers=lambda: [FILES])
    meaning = "write all its numbers, and the curves"
    parser.add_argument("--json", metavar="FILE", help=meaning, offers=lambda: [FILES])
    meaning = "what a device burns, for the energy"
    parser.add_argument("--watts", type=float, default=0.0, metavar="W", help=meaning)


def run(asked: argparse.Namespace) -> None:
    from ordsmed.report import report

    print_lines(
        report.write(
            asked.folders, out=asked.out, markdown=asked.markdown, json=asked.json, watts=asked.watts
        )
    )  # fmt: skip
