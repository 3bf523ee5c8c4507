"""estimate hours, energy and memory of a training, here or on a cluster, each as a range; scaling; published times"""

from __future__ import annotations

import argparse
from pathlib import Path

from ordsmed.base.arguments import FILES, Parser, UsageError, whole
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 4)


def arguments(parser: Parser) -> None:
    meaning = "a recipe of pretrain or finetune, or a run's folder"
    offers = lambda: [*flags.recipes_of(), FILES]  # noqa: E731
    parser.add_argument("name", nargs="?", metavar="RECIPE|RUN", help=meaning, offers=offers)
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="change a setting")
    meaning = "see `sites` (default: this machine)"
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help=meaning, offers=flags.sites)
    parser.add_argument("--nodes", type=whole(1), default=1, metavar="N", help="number of nodes (1)")
    parser.add_argument("--gpus", type=whole(0), metavar="N", help="GPUs per node (default: all)")
    meaning = "time some steps of it here first, which makes missing data"
    parser.add_argument("--measure", action="store_true", help=meaning)
    meaning = (
        "a file of `bench` (work/bench/measurements.jsonl), or a folder of such files and of reports of `validate`"
    )
    parser.add_argument("--measurements", metavar="FILE", help=meaning)
    meaning = "weak and strong scaling of the rates in a file (docs/clusters.md), or in a file of `bench`"
    parser.add_argument("--scaling", metavar="FILE", help=meaning)
    parser.add_argument("--claims", action="store_true", help="published training times next to estimates")
    parser.add_argument("--markdown", action="store_true", help="with --claims: as a Markdown table")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    if sum(map(bool, (args.name, args.scaling, args.claims))) != 1:
        wanted = "one of RECIPE, --scaling FILE and --claims"
        raise UsageError("estimate", "found none of them, or several", wanted, "`ordsmed estimate RECIPE --site SITE`")
    if args.scaling:
        from ordsmed.machines.cluster import scaling

        series = scaling.read(Path(args.scaling))
        print_or_json(scaling.facts(series), scaling.lines(series), args)
    elif args.claims:
        from ordsmed.machines.cluster import claims

        if args.markdown:
            print("\n".join(claims.markdown()))
        else:
            print_or_json(claims.facts(), claims.lines() if not args.json else [], args)
    else:
        from ordsmed.machines.cluster.estimate import estimate

        whole = estimate(
            args.name,
            args.overrides,
            site=args.site,
            nodes=args.nodes,
            per_node=args.gpus,
            measure=args.measure,
            file=Path(args.measurements) if args.measurements else None,
        )
        if args.json:
            print_or_json(whole.facts(), [], args)
        else:
            print_lines(whole.lines())
