"""a recipe as a job of a cluster: planned, checked, written as a script; with --yes handed to Slurm

Behind `--` stand options of sbatch of your own:
    ordsmed submit pretrain/bert-base --site saga:a100 --account nn1234k -- --exclude=n12 --reservation=x
A server takes its own flags too:
    ordsmed submit serve work/pretrain/tiny-bert --site saga --checkpoints --precision bf16
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, whole
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json

PLACE = ("machines", 5)


def arguments(parser: Parser) -> None:
    parser.behind = "options"
    meaning = "of pretrain, finetune or corpus, or a run's folder; or `doctor`, `validate`, `serve`"
    offers = lambda: [*flags.recipes_of(), "doctor", "validate", "serve", FILES]  # noqa: E731
    parser.add_argument("name", nargs="?", metavar="RECIPE|RUN", help=meaning, offers=offers)
    meaning = "change a setting; of `serve` its models: RUN or NAME=RUN"
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help=meaning)
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help="see `sites`", offers=flags.sites)
    parser.add_argument("--nodes", type=whole(1), default=1, metavar="N", help="(1)")
    meaning = "a node; left out: all it has; 0: to a partition without GPUs, if the site has one"
    parser.add_argument("--gpus", type=whole(0), metavar="N", help=meaning)
    meaning = "processes a node; left out: one a GPU"
    parser.add_argument("--tasks", type=whole(1), default=0, metavar="N", help=meaning)
    meaning = "cores a process; left out: its share of what comes with the GPUs, or of a node"
    parser.add_argument("--cpus-per-task", type=whole(1), default=0, metavar="N", help=meaning)
    meaning = "memory a node; left out: what comes with its GPUs or cores; written as the site wants it"
    parser.add_argument("--mem", default="", metavar="100G", help=meaning)
    meaning = "limit of the job; left out: a day, or the partition's"
    parser.add_argument("--time", default="", metavar="12h", help=meaning)
    parser.add_argument("--account", default="", metavar="NAME", help="who pays")
    parser.add_argument("--qos", default="", metavar="NAME", help="quality of service; left out: the partition's")
    meaning = "of a corpus or of trials: an array of N jobs"
    parser.add_argument("--parts", "--array", type=whole(2), default=0, metavar="N", help=meaning)
    meaning = "times that it is tried again on other nodes when a process or a node is lost (3)"
    parser.add_argument("--retries", type=whole(0), default=3, metavar="N", help=meaning)
    meaning = "more nodes, on which it goes on at once when one is lost"
    parser.add_argument("--spares", type=whole(0), default=0, metavar="N", help=meaning)
    meaning = "missing data are made by the job itself; left out: by a job without GPUs before it"
    parser.add_argument("--data-inside", action="store_true", help=meaning)
    meaning = "N jobs one behind the other, none sent in again"
    parser.add_argument("--chain", type=whole(2), default=0, metavar="N", help=meaning)
    meaning = "before the limit at which it saves (300, or a tenth)"
    parser.add_argument("--save", type=whole(1), metavar="SECONDS", help=meaning)
    parser.add_argument(
        "--container", default="", metavar="IMAGE", help="by Apptainer or Singularity; left out: the site's"
    )
    meaning = "of `install --by overlay`: it holds ordsmed, and lies over the container"
    parser.add_argument("--overlay", default="", metavar="FILE", help=meaning)
    parser.add_argument("--enroot", action="store_true", help="the container by Enroot and Pyxis")
    meaning = "of each node's own disk (/tmp, /dev/shm): Python and its packages are copied there first"
    parser.add_argument("--packed", default="", metavar="FOLDER", help=meaning)
    meaning = "of `serve`: clients send the token in this file; left out: one is made, readable by you alone"
    parser.add_argument("--token-file", default="", metavar="FILE", help=meaning)
    parser.add_argument("--torchrun", action="store_true", help="one torchrun a node in place of Slurm's tasks")
    parser.add_argument("--out", default="", metavar="FILE", help="the script; left out: work/jobs/NAME-1.sh, -2 ...")
    parser.add_argument("--yes", action="store_true", help="hand it to Slurm; without, it is written only")
    meaning = "although passes over the text make no sense; as `pretrain --yes`"
    parser.add_argument("--anyway", action="store_true", help=meaning)
    parser.add_argument("--status", action="store_true", help="the jobs that were sent in from here")
    flags.json_line(parser)
    before = len(parser._actions)
    flags.serving(parser)
    for action in parser._actions[before:]:
        action.help = f"of `serve`: {action.help}"


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.arguments import UsageError
    from ordsmed.base.screen import command, command_lines
    from ordsmed.machines.cluster import checks, sent, serving, submit

    if args.status:
        print_or_json(sent.sent()[0] if args.json else [], sent.status() if not args.json else [], args)
        return
    if not args.name or not args.site:
        missing = "--site" if args.name else "RECIPE"
        wanted = "`ordsmed submit RECIPE --site SITE`"
        raise UsageError("submit", f"no {missing}", wanted, "`ordsmed sites` lists those")
    served = flags.serving_words(args)
    wish = submit.Wish(
        site=args.site, nodes=args.nodes, gpus=args.gpus, tasks=args.tasks, cores=args.cpus_per_task, memory=args.mem,
        time=args.time, save=args.save, options=tuple(args.options),
        account=args.account, quality=args.qos, parts=args.parts, requeue=not args.chain,
        container=args.container, overlay=args.overlay, enroot=args.enroot, torchrun=args.torchrun, anyway=args.anyway,
        packed=args.packed,
        retries=args.retries, spares=args.spares, data_inside=args.data_inside, token=args.token_file,
        served=tuple(served),
    )  # fmt: skip
    preparations = {**dict.fromkeys(checks.VERBS, checks.prepare), serving.VERB: serving.prepare}
    prepare = preparations.get(args.name, submit.prepare)
    for flag in [*(["--token-file"] if args.token_file else []), *served]:
        if flag.startswith("--") and args.name != serving.VERB:
            raise UsageError(flag, f"found with {args.name}", "`submit serve`")
    if args.name == serving.VERB:
        flags.check_serving(args)
    written = prepare(args.name, args.overrides, wish, out=args.out)
    numbers = sent.queue(written, args.chain) if args.yes else []
    if args.json:
        facts = {"script": str(written.path), "jobs": numbers, "log": str(written.job.log)}
        print_or_json({**facts, "data": [str(data.path) for data in written.data]}, [], args)
        return
    print_lines([*written.lines, f"{written.path}: written"])
    if numbers:
        print_lines([f"sent in: {', '.join(numbers)}", *command_lines("next", command("submit", "--status"))])
    else:
        words = args.words[1:]
        end = words.index("--") if "--" in words else len(words)
        again = command("submit", *words[:end], "--yes", *words[end:])
        print_lines(command_lines("next (or give the script to sbatch)", again))
