"""train the best small model of a fixed budget: a sample of your texts, a run per seed, scores, an entry of the board

TRACK is cpu, gpu, babylm-10m or babylm-100m (`ordsmed recipes speedrun/cpu` prints its rules). TEXTS are files, folders
or patterns, or a corpus; OUT is a new folder. The number of steps follows from the budget of operations. The same
command resumes after it was stopped. docs/speedrun.md has the rules and the records.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ordsmed.base.arguments import FILES, Parser, seeds, whole
from ordsmed.base.ending import GOES_ON
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_or_json

if TYPE_CHECKING:
    from ordsmed.maker.speedrun.track import SpeedrunRequest

PLACE = ("make", 2)
RECIPE = "ordsmed.maker.speedrun.track:Track"
STOPPED = GOES_ON


def arguments(parser: Parser) -> None:
    meaning = "name of a track, or your own recipe"
    parser.add_argument("track", nargs="?", metavar="TRACK", help=meaning, offers=_offers)
    meaning = "files, folders, patterns, or a corpus; a new folder; key=value to change the track or its recipe"
    parser.add_argument("texts", nargs="*", metavar="TEXTS OUT", help=meaning, offers=_settings)
    parser.add_argument("--kind", default="", metavar="KIND", help="one of the track's models (default: the first)")
    meaning = "recipe of pretraining, instead of the track's"
    offers = lambda: flags.recipes_of("pretrain")  # noqa: E731
    parser.add_argument("--recipe", default="", metavar="RECIPE", help=meaning, offers=offers)
    meaning = "multiple of the track's budget (1); several, such as 0.125,0.25,0.5,1, give a curve of scores"
    parser.add_argument("--budget", type=_budgets, metavar="X", help=meaning)
    parser.add_argument("--seeds", type=seeds, metavar="SEEDS", help="1..3 or 1,2,7 (default: those of the track)")
    meaning = "minimal pairs, to be scored as in BabyLM's evaluation"
    parser.add_argument("--blimp", default="", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    meaning = "runs at a time (default: one per GPU, or per two cores of a CPU)"
    parser.add_argument("--workers", type=whole(1, 1024), metavar="N", default=0, help=meaning)
    parser.add_argument("--dry-run", action="store_true", help="print the plan only; nothing is written")
    meaning = "repeat an entry (entry.json, or its folder) and print what differs; other TEXTS OUT may follow"
    parser.add_argument("--check", default="", metavar="ENTRY", help=meaning, offers=lambda: [FILES])
    meaning = "print the entries of a folder as Markdown tables"
    parser.add_argument("--board", default="", metavar="FOLDER", help=meaning, offers=lambda: [FILES])
    flags.yes(parser)
    flags.anew(parser)
    flags.json_line(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.maker.runner import rehearse
    from ordsmed.maker.speedrun.speedrun import SpeedrunJob, perform

    if args.board or args.check:
        lines = _board(args) if args.board else _check(args)
        print_or_json({"lines": lines}, lines, args)
        return
    request = _request(args)
    if args.dry_run:
        plan = rehearse(SpeedrunJob(request), anew=args.anew)
        print_or_json(plan.facts(), ["plan:", *plan.lines()], args)
        return
    result = perform(request, anew=args.anew)
    print_or_json({"folder": str(result.folder), "entries": result.entries}, result.lines, args)


def _board(args: argparse.Namespace) -> list[str]:
    from ordsmed.maker.speedrun import board

    if args.check or args.track:
        raise RecipeError("--board", f"found with {args.track or '--check'}", "only a folder of entries")
    if not Path(args.board).is_dir():
        raise RecipeError("--board", f"{args.board} is not a folder", "a folder of entries, each a JSON file")
    return board.lines(Path(args.board))


def _check(args: argparse.Namespace) -> list[str]:
    from ordsmed.maker.speedrun import reproduction

    names = [args.track, *args.texts] if args.track else []
    if len(names) == 1:
        raise RecipeError("--check", f"found only {names[0]} after it", "TEXTS OUT", "name a new folder as well")
    return reproduction.check(Path(args.check), names[:-1], names[-1] if names else "", args.blimp)


def _offers() -> list[str]:
    return ["cpu", "gpu", "babylm-10m", "babylm-100m", FILES]


def _settings() -> list[str]:
    return [*flags.settings_of("speedrun"), FILES]


def _budgets(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text}; wanted numbers, such as 0.1 or 0.25,0.5,1") from None


def _request(args: argparse.Namespace) -> SpeedrunRequest:
    from ordsmed.maker.speedrun.track import SpeedrunRequest

    changes = [word for word in args.texts if "=" in word and not Path(word).exists()]
    names = [word for word in args.texts if word not in changes]
    if len(names) < 2:
        problem = f"found only {' '.join([args.track or 'nothing', *names])}"
        remedy = "name a new folder as well; `ordsmed recipes speedrun` lists the tracks"
        raise RecipeError("speedrun", problem, "TRACK TEXTS OUT", remedy)
    options = {key: getattr(args, key) for key in ("kind", "recipe", "blimp", "workers", "yes")}
    options |= {"seeds": args.seeds or (), "budgets": args.budget or (1.0,)}
    return SpeedrunRequest(args.track, tuple(names[:-1]), names[-1], changes=tuple(changes), **options)
