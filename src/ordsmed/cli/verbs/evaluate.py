"""evaluate a fine-tuned model on files of its task, or any language model with probes, with error bars

Language models are evaluated with `--probe NAME FILE...`, which may be given several times. RUN may then be several
models, each of which is compared with the first, or a recipe with models and probes. `ordsmed menus probes` lists the
probes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ordsmed.base.arguments import FILES, Parser, UsageError, number, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("evaluate", 1)
RECIPE = "ordsmed.measure.evaluation.recipe:Evaluation"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    meaning = "a fine-tuning, a Hugging Face folder; with --probe any language model; or a recipe of probes"
    parser.add_argument(
        "run", metavar="RUN|RECIPE", help=meaning, offers=lambda: [*flags.recipes_of("evaluate"), FILES]
    )
    meaning = "files of the task, and task.key=value; with --probe more models; with a recipe key.path=value"
    parser.add_argument(
        "files", nargs="*", metavar="FILE|MODEL", help=meaning, offers=lambda: [*flags.settings_of("evaluate"), FILES]
    )
    meaning = "a probe, its files, and its settings as key=value; may be given several times"
    words = ("NAME", "FILE|key=value")
    parser.add_argument("--probe", nargs="+", action="append", metavar=words, default=[], help=meaning)
    meaning = "for all probes: how models are read (causal, masked, word...)"
    parser.add_argument("--way", metavar="WAY", help=meaning, offers=lambda: flags.WAYS)
    meaning = "for probes that draw windows: number of batches"
    parser.add_argument("--iterations", type=whole(1), metavar="N", help=meaning)
    parser.add_argument("--batch", type=whole(1), metavar="N", help="for probes that draw windows: windows per batch")
    meaning = "for a probe: write the scores of every example, one per line, with the model's name if there are several"
    parser.add_argument("--each", metavar="OUT.jsonl", help=meaning)
    meaning = "for probes: folder of results, instead of the model's scores/"
    parser.add_argument("--out", metavar="FOLDER", help=meaning)
    flags.anew(parser, "for probes: compute saved results again")
    meaning = "use this checkpoint, not the best or last; all: every checkpoint"
    parser.add_argument("--step", type=flags.step_or_all, metavar="N|all", help=meaning)
    meaning = "largest share of tokens that may be unknown to the tokenizer (0.1)"
    parser.add_argument(
        "--max-unknown", former="--most-unknown", type=number, metavar="SHARE", default=0.1, help=meaning
    )
    parser.add_argument("--layout", default="", metavar="RxSxT", help="for probes: copies x 1 x tensor")
    flags.devices(parser)
    flags.device(parser)
    flags.cache(parser)
    flags.precision(parser)
    flags.threads(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    if args.probe or _is_recipe(args.run):
        _probes(args)
        return
    from ordsmed.api.model import open
    from ordsmed.base.stages import VECTORS, stage

    for flag in ("way", "iterations", "batch", "each", "out", "layout", "devices", "anew"):
        if getattr(args, flag):
            raise UsageError(f"--{flag}", "needs a probe, but none is named", "--probe NAME FILE...")
    files, overrides = flags.split_overrides(args.files)
    if args.step == "all":
        raise UsageError("--step", "found all without a probe", "the number of a checkpoint")
    scores, lines = open(stage(args.run, *VECTORS), **flags.opened_as(args)).evaluate(
        files, overrides=overrides, max_unknown=args.max_unknown
    )
    print_or_json(scores, lines, args)


def _probes(args: argparse.Namespace) -> None:
    if args.devices and "RANK" not in os.environ:
        from ordsmed.cli.recipes import run_in_processes

        run_in_processes(args)
    from ordsmed.api.measuring import ask
    from ordsmed.measure.evaluation.evaluate import ComputeOptions
    from ordsmed.measure.evaluation.recipe import named, read

    common = {"way": args.way, "iterations": args.iterations, "batch": args.batch}
    step: int | str | None = args.step
    out = args.out
    if args.probe:
        models, probes = (args.run, *args.files), named(args.probe, **common)
    else:
        recipe = read(args.run, args.files)
        models, probes, out = recipe.models, recipe.probe, out or recipe.out
        step = recipe.step if step is None else step
    means = ComputeOptions(args.device, args.threads, args.layout, args.anew, args.precision, args.max_unknown)
    result = ask(models, probes, step=step, out=out, means=means, records=args.each)
    if result.lines:  # else another process prints them
        print_or_json(result.facts, result.lines, args)


def _is_recipe(name: str) -> bool:
    return not Path(name).is_dir() and (name.endswith(".toml") or name in flags.recipes_of("evaluate"))
