"""compare projects that pretrain such models: maintainers, requirements, on how many machines they run"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("inspect", 5)


def arguments(parser: Parser) -> None:
    meaning = "add what `estimate` says for our recipe on the devices of each reported time, or why it cannot"
    parser.add_argument("--estimates", action="store_true", help=meaning)
    shapes = parser.add_mutually_exclusive_group()
    shapes.add_argument("--markdown", action="store_true", help="as a Markdown table")
    flags.json_line(shapes)


def run(args: argparse.Namespace) -> None:
    from ordsmed.machines.cluster import survey

    estimates = None
    if args.estimates:
        from ordsmed.machines.cluster import claims

        estimates = claims.claims_by_code()
    if args.markdown:
        print("\n".join(survey.markdown(estimates)))
        return
    if args.json:
        print_or_json(survey.facts(estimates), [], args)
        return
    print_lines(survey.lines(estimates))
