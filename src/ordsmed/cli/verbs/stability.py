"""measure how much a training varies with its seed: mean and deviation; or compare two recipes seed by seed"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import FILES, Parser, UsageError, seeds, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

PLACE = ("evaluate", 4)
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    meaning = "a recipe of pretrain or finetune, or the folder of a study"
    offers = lambda: [*flags.recipes_of("pretrain"), *flags.recipes_of("finetune"), FILES]  # noqa: E731
    parser.add_argument("name", metavar="RECIPE|FOLDER", help=meaning, offers=offers)
    meaning = "a second one to compare, or settings to change in each"
    parser.add_argument("other", nargs="*", metavar="RECIPE|FOLDER|key.path=value", help=meaning, offers=offers)
    meaning = "1..5 or 1,2,7 (default: those of the recipe or folder, or 1..5)"
    parser.add_argument("--seeds", type=seeds, metavar="SEEDS", help=meaning)
    meaning = "runs at a time (default: one per GPU, or per two cores of a CPU)"
    parser.add_argument("--workers", type=whole(1, 1024), metavar="N", default=0, help=meaning)
    meaning = "processes of each run, one per GPU (or share of the CPU)"
    parser.add_argument("--devices", type=whole(1), metavar="N", default=0, help=meaning)
    meaning = "metric to compare runs by (default: the task's score, or validation, or loss)"
    parser.add_argument("--metric", default="", metavar="NAME", help=meaning)
    flags.yes(parser)
    flags.anew(parser)
    flags.cache(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.tell.stability import pages, results
    from ordsmed.tell.stability.stability import StudyOptions, compare, stability

    names = [word for word in args.other if "=" not in word]
    words = [word for word in args.other if "=" in word]
    if len(names) > 1:
        raise UsageError("stability", f"`{names[1]}` is one name too many", "one recipe, or two to compare")
    flags_given = {key: getattr(args, key) for key in ("seeds", "workers", "devices", "metric", "anew", "yes")}
    options = StudyOptions(**flags_given)
    if names:
        result = compare(args.name, names[0], words, options)
        lines = pages.compared_lines(result)
    else:
        result = stability(args.name, words, options)
        lines = [results.ended(result), f"{result['folder']}/stability.md has each seed, stability.html their curves"]
    print_or_json(result, lines, args)
