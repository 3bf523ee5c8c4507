"""a recipe as a job of a cluster: planned, checked, written as a script; with --yes handed to Slurm"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, whole
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 5)


def arguments(parser: Parser) -> None:
    meaning = "of pretrain, finetune or corpus, or a run's folder"
    offers = lambda: [*flags.recipes_of(), FILES]  # noqa: E731
    parser.add_argument("name", nargs="?", metavar="RECIPE|RUN", help=meaning, offers=offers)
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help="change a setting")
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help="see `sites`", offers=flags.sites)
    parser.add_argument("--nodes", type=whole(1), default=1, metavar="N", help="(1)")
    parser.add_argument("--gpus", type=whole(0), metavar="N", help="a node; left out: all it has")
    meaning = "processes a node; left out: one a GPU"
    parser.add_argument("--tasks", type=whole(1), default=0, metavar="N", help=meaning)
    meaning = "limit of the job; left out: a day, or the partition's"
    parser.add_argument("--time", default="", metavar="12h", help=meaning)
    parser.add_argument("--account", default="", metavar="NAME", help="who pays")
    parser.add_argument("--qos", default="", metavar="NAME", help="quality of service")
    parser.add_argument(
        "--parts", type=whole(2), default=0, metavar="N", help="of a corpus or of trials: an array of N jobs"
    )
    meaning = "N jobs one behind the other, none sent in again"
    parser.add_argument("--chain", type=whole(2), default=0, metavar="N", help=meaning)
    meaning = "before the limit at which it saves (300, or a tenth)"
    parser.add_argument("--save", type=whole(1), metavar="SECONDS", help=meaning)
    parser.add_argument("--container", default="", metavar="IMAGE", help="by Apptainer; left out: the site's")
    parser.add_argument("--enroot", action="store_true", help="the container by Enroot and Pyxis")
    parser.add_argument("--torchrun", action="store_true", help="one torchrun a node in place of Slurm's tasks")
    parser.add_argument("--out", default="", metavar="FILE", help="the script; left out: work/jobs/NAME.sh")
    parser.add_argument("--yes", action="store_true", help="hand it to Slurm; without, it is written only")
    meaning = "although passes over the text make no sense; as `pretrain --yes`"
    parser.add_argument("--anyway", action="store_true", help=meaning)
    parser.add_argument("--status", action="store_true", help="the jobs that were sent in from here")
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.arguments import UsageError
    from ordsmed.base.screen import command
    from ordsmed.machines.cluster import submit

    if args.status:
        print_or_json(submit.sent(), submit.status() if not args.json else [], args)
        return
    if not args.name or not args.site:
        missing = "--site" if args.name else "RECIPE"
        wanted = "`ordsmed submit RECIPE --site SITE`"
        raise UsageError("submit", f"no {missing}", wanted, "`ordsmed sites` lists those")
    wish = submit.Wish(
        site=args.site, nodes=args.nodes, gpus=args.gpus, tasks=args.tasks, time=args.time, save=args.save,
        account=args.account, quality=args.qos, parts=args.parts, requeue=not args.chain,
        container=args.container, enroot=args.enroot, torchrun=args.torchrun, anyway=args.anyway,
    )  # fmt: skip
    written = submit.prepare(args.name, args.overrides, wish, out=args.out)
    numbers = submit.queue(written, args.chain) if args.yes else []
    if args.json:
        print_or_json({"script": str(written.path), "jobs": numbers, "log": str(written.job.log)}, [], args)
        return
    print_lines([*written.lines, f"{written.path}: written"])
    if numbers:
        print_lines([f"sent in: {', '.join(numbers)}", f"next: {command('submit', '--status')}"])
    else:
        print_lines([f"next: {command('submit', *args.words[1:], '--yes')}, or sbatch it yourself"])
