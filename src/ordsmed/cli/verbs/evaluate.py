"""how good a model is: a fine-tuned one on files of its task, any language model by probes, with error bars

A language model is asked by `--probe NAME FILE...`, several of them where one likes; RUN may then be several models,
each of which is compared with the first, or a recipe that names models and probes. `ordsmed menus probes` lists what
can be asked.
"""

from __future__ import annotations

import argparse
import os
import sys
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
    meaning = "files of the task, and task.key=value; with --probe more models; of a recipe key.path=value"
    parser.add_argument(
        "files", nargs="*", metavar="FILE|MODEL", help=meaning, offers=lambda: [*flags.settings_of("evaluate"), FILES]
    )
    meaning = "a probe, its files, and settings of it as key=value; again for another probe"
    words = ("NAME", "FILE|key=value")
    parser.add_argument("--probe", nargs="+", action="append", metavar=words, default=[], help=meaning)
    meaning = "of all probes: how models are read (causal, masked, word...)"
    parser.add_argument("--way", metavar="WAY", help=meaning, offers=lambda: flags.WAYS)
    parser.add_argument("--iterations", type=whole(1), metavar="N", help="of probes that draw windows: so many batches")
    parser.add_argument("--batch", type=whole(1), metavar="N", help="of those: windows a batch")
    meaning = "of a probe: the scores of every example, a line each, of several models with their names"
    parser.add_argument("--each", metavar="OUT.jsonl", help=meaning)
    parser.add_argument(
        "--out", metavar="FOLDER", help="of probes: where results are put, not into the model's scores/"
    )
    flags.anew(parser, "of probes: compute again what is kept")
    meaning = "of this checkpoint, not the best or last; all: each kept one"
    parser.add_argument("--step", type=flags.step_or_all, metavar="N|all", help=meaning)
    meaning = "share of the texts' tokens that may be unknown to the tokenizer (0.1); more is refused"
    parser.add_argument("--most-unknown", type=number, metavar="SHARE", default=0.1, help=meaning)
    parser.add_argument("--layout", default="", metavar="RxSxT", help="of probes: copies x 1 x tensor")
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
            raise UsageError(f"--{flag}", "is of probes, but none is named", "--probe NAME FILE...")
    files, overrides = flags.split_overrides(args.files)
    if args.step == "all":
        raise UsageError("--step", "found all, of a task", "the number of a checkpoint")
    scores, lines = open(stage(args.run, *VECTORS), **flags.opened_as(args)).evaluate(
        files, overrides=overrides, most_unknown=args.most_unknown
    )
    print_or_json(scores, lines, args)


def _probes(args: argparse.Namespace) -> None:
    """Ask, on as many processes as are wanted, and tell."""
    if args.devices and "RANK" not in os.environ:
        from ordsmed.base.launch.local import start
        from ordsmed.cli.recipes import without

        sys.exit(start(without(args.words, "--devices"), args.devices))
    from ordsmed.api.measuring import ask
    from ordsmed.measure.evaluation.evaluate import Means
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
    means = Means(args.device, args.threads, args.layout, args.anew, args.precision, args.most_unknown)
    result = ask(models, probes, step=step, out=out, means=means, records=args.each)
    if result.lines:  # else another process tells
        print_or_json(result.facts, result.lines, args)


def _is_recipe(name: str) -> bool:
    """Is it no folder, but a file or the name of a recipe?"""
    return not Path(name).is_dir() and (name.endswith(".toml") or name in flags.recipes_of("evaluate"))
