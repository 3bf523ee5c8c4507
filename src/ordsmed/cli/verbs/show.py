"""print a recipe or run: settings, size, cost; two of them: their difference; --step: the documents of a step"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, whole
from ordsmed.base.errors import RecipeError
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 1)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", metavar="RECIPE|RUN", offers=flags.recipes_and_files)
    meaning = "a second one, or overrides"
    parser.add_argument(
        "other", nargs="*", metavar="RECIPE|RUN|key.path=value", help=meaning, offers=flags.recipes_and_files
    )
    meaning = "print which documents this step of the run saw"
    parser.add_argument("--step", type=whole(1), metavar="N", help=meaning)
    meaning = "print mesh, batch arithmetic and memory on --devices"
    parser.add_argument("--layout", nargs="?", const="", metavar="RxSxT", help=meaning)
    parser.add_argument("--settings", action="store_true", help="for a run: print its settings as well")
    parser.add_argument("--all", action="store_true", help="print defaults as well")
    flags.devices(parser)
    flags.cache(parser)


def run(args: argparse.Namespace) -> None:
    from ordsmed.base import settings
    from ordsmed.maker.request import is_recipe, of_recipe
    from ordsmed.maker.speedrun.track import is_track, track
    from ordsmed.tell.show import show

    if args.step is not None:
        print_lines(show.documents(args.name, args.step))
    elif args.other and "=" not in args.other[0]:
        second, *overrides = args.other
        if more := next((word for word in overrides if "=" not in word), ""):
            raise RecipeError(f"`{more}`", "one name too many", "two recipes or runs to compare")
        print_lines(show.difference(args.name, second, overrides))
    elif args.layout is not None:
        options = {"layout": args.layout, "site": args.site, "devices": args.devices}
        print_lines(show.layout(args.name, args.other, **options))
    elif is_recipe(args.name) or is_track(args.name):
        request = of_recipe(args.name, args.other) if is_recipe(args.name) else track(args.name, args.other)
        print_lines(
            [f"{args.name}: {request.verb}", *(f"  {line}" for line in settings.lines(settings.plain(request)))]
        )
    else:
        options = {"site": args.site, "devices": args.devices, "own_settings": args.settings, "defaults": args.all}
        print_lines(show.show(args.name, args.other, **options))
