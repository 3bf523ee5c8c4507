"""plan and check a recipe as a job of a cluster, and write its script; with --yes submit it to Slurm

Your own options of sbatch go after `--`:
    ordsmed submit pretrain/bert-base --site saga:a100 --account nn1234k -- --exclude=n12 --reservation=x
A server takes its own flags as well:
    ordsmed submit serve work/pretrain/tiny-bert --site saga --checkpoints --precision bf16
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, whole
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines, print_or_json
from ordsmed.cli.server_flags import ServerFlags

PLACE = ("machines", 5)


def arguments(parser: Parser) -> None:
    parser.behind = "options"
    meaning = "a recipe of pretrain, finetune or corpus, or a run's folder; or `doctor`, `validate`, `serve`"
    offers = lambda: [*flags.recipes_of(), "doctor", "validate", "serve", FILES]  # noqa: E731
    parser.add_argument("name", nargs="?", metavar="RECIPE|RUN", help=meaning, offers=offers)
    meaning = "change a setting; for `serve` its models: RUN or NAME=RUN"
    parser.add_argument("overrides", nargs="*", metavar="key.path=value", help=meaning)
    parser.add_argument("--site", metavar="SITE[:PARTITION]", default="", help="see `sites`", offers=flags.sites)
    parser.add_argument("--nodes", type=whole(1), default=1, metavar="N", help="number of nodes (1)")
    meaning = "GPUs per node (default: all); 0: use a partition without GPUs, if the site has one"
    parser.add_argument("--gpus", type=whole(0), metavar="N", help=meaning)
    meaning = "processes per node (default: one per GPU)"
    parser.add_argument("--tasks", type=whole(1), default=0, metavar="N", help=meaning)
    meaning = "cores per process (default: its share of the cores that belong to the GPUs, or of the node)"
    parser.add_argument("--cpus-per-task", type=whole(1), default=0, metavar="N", help=meaning)
    meaning = "memory per node (default: what belongs to its GPUs or cores); written in the form of the site"
    parser.add_argument("--mem", default="", metavar="100G", help=meaning)
    meaning = "time limit of the job (default: a day, or the partition's limit)"
    parser.add_argument("--time", default="", metavar="12h", help=meaning)
    parser.add_argument("--account", default="", metavar="NAME", help="account to charge")
    parser.add_argument("--qos", default="", metavar="NAME", help="quality of service (default: the partition's)")
    meaning = "for a corpus or trials: an array of N jobs"
    parser.add_argument("--parts", "--array", type=whole(2), default=0, metavar="N", help=meaning)
    meaning = "retries on other nodes after a process or node was lost (3)"
    parser.add_argument("--retries", type=whole(0), default=3, metavar="N", help=meaning)
    meaning = "spare nodes, on which it resumes at once after a node was lost"
    parser.add_argument("--spares", type=whole(0), default=0, metavar="N", help=meaning)
    meaning = "let the job itself make missing data (default: a job without GPUs before it does)"
    parser.add_argument("--data-inside", action="store_true", help=meaning)
    meaning = "N jobs in a row, without requeuing"
    parser.add_argument("--chain", type=whole(2), default=0, metavar="N", help=meaning)
    meaning = "time before the limit at which it saves (300, or a tenth)"
    parser.add_argument("--save", type=whole(1), metavar="SECONDS", help=meaning)
    meaning = "image for Apptainer or Singularity (default: the site's)"
    parser.add_argument("--container", default="", metavar="IMAGE", help=meaning)
    meaning = "the overlay with ordsmed from `install --by overlay`, mounted over the container"
    parser.add_argument("--overlay", default="", metavar="FILE", help=meaning)
    parser.add_argument("--enroot", action="store_true", help="run the container with Enroot and Pyxis")
    meaning = "folder on each node's own disk (/tmp, /dev/shm), to which Python and its packages are copied first"
    parser.add_argument("--packed", default="", metavar="FOLDER", help=meaning)
    meaning = "for `serve`: a file with the token of clients (default: a new one that only you can read)"
    parser.add_argument("--token-file", default="", metavar="FILE", help=meaning)
    parser.add_argument("--torchrun", action="store_true", help="one torchrun per node instead of Slurm's tasks")
    parser.add_argument("--out", default="", metavar="FILE", help="script (default: work/jobs/NAME-1.sh, -2 ...)")
    parser.add_argument("--yes", action="store_true", help="submit it to Slurm; without it, it is only written")
    meaning = "train even with too many passes over the text, like `pretrain --yes`"
    parser.add_argument("--anyway", action="store_true", help=meaning)
    parser.add_argument("--status", action="store_true", help="list the jobs submitted from here")
    flags.json_line(parser)
    before = len(parser._actions)
    ServerFlags.add(parser)
    for action in parser._actions[before:]:
        action.help = f"for `serve`: {action.help}"


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.arguments import UsageError
    from ordsmed.base.screen import command, command_lines
    from ordsmed.machines.cluster import checks, sent, serving, submit

    if args.status:
        print_or_json(sent.submitted_jobs()[0] if args.json else [], sent.status() if not args.json else [], args)
        return
    if not args.name or not args.site:
        missing = "--site" if args.name else "RECIPE"
        wanted = "`ordsmed submit RECIPE --site SITE`"
        raise UsageError("submit", f"no {missing}", wanted, "`ordsmed sites` lists sites")
    served = ServerFlags(args).words()
    request = submit.JobRequest(
        site=args.site,
        nodes=args.nodes,
        gpus=args.gpus,
        tasks=args.tasks,
        cores=args.cpus_per_task,
        memory=args.mem,
        time=args.time,
        save=args.save,
        options=tuple(args.options),
        account=args.account,
        quality=args.qos,
        parts=args.parts,
        requeue=not args.chain,
        container=args.container,
        overlay=args.overlay,
        enroot=args.enroot,
        torchrun=args.torchrun,
        anyway=args.anyway,
        packed=args.packed,
        retries=args.retries,
        spares=args.spares,
        data_inside=args.data_inside,
        token=args.token_file,
        served=tuple(served),
    )
    preparations = {**dict.fromkeys(checks.VERBS, checks.prepare), serving.VERB: serving.prepare}
    prepare = preparations.get(args.name, submit.prepare)
    for flag in [*(["--token-file"] if args.token_file else []), *served]:
        if flag.startswith("--") and args.name != serving.VERB:
            raise UsageError(flag, f"found with {args.name}", "`submit serve`")
    if args.name == serving.VERB:
        ServerFlags(args).check()
    written = prepare(args.name, args.overrides, request, out=args.out)
    numbers = sent.queue(written, args.chain) if args.yes else []
    if args.json:
        facts = {"script": str(written.path), "jobs": numbers, "log": str(written.job.log)}
        print_or_json({**facts, "data": [str(data.path) for data in written.data]}, [], args)
        return
    print_lines([*written.lines, f"{written.path}: written"])
    if numbers:
        print_lines([f"submitted: {', '.join(numbers)}", *command_lines("next", command("submit", "--status"))])
    else:
        words = args.words[1:]
        end = words.index("--") if "--" in words else len(words)
        again = command("submit", *words[:end], "--yes", *words[end:])
        print_lines(command_lines("next (or give the script to sbatch)", again))
