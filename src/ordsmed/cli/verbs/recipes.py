"""list the built-in recipes; with a name: print it, to start your own from; with another word: list matching names

`ordsmed recipes electra-small > mine.toml`, then `ordsmed pretrain mine.toml`: this works in any folder.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from ordsmed.base.arguments import Parser
from ordsmed.base.say import many
from ordsmed.base.screen import table
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 3)

OF_A_MACHINE = "-dgx"  # in names of recipes for a machine of a paper
GROUPS = {
    "tiny": "to try, on Python's documentation",
    "laptop": "`ordsmed pretrain laptop/NAME`",
    "desk": "`ordsmed pretrain desk/NAME`",
    "corpus": "`ordsmed corpus NAME`",
    "tokenizer": "`ordsmed tokenizer NAME`",
    "encode": "`ordsmed encode NAME`",
    "pretrain": "`ordsmed pretrain NAME`",
    "continue": "`ordsmed pretrain continue/NAME init=MODEL`",
    "search": "`ordsmed make search/NAME texts=FILES out=FOLDER`",
    "finetune": "`ordsmed finetune NAME init=RUN`",
    "evaluate": "`ordsmed evaluate RUN NAME`",
    "bench": "`ordsmed bench NAME`",
}


def arguments(parser: Parser) -> None:
    meaning = "print this recipe; or list those whose names have this word"
    parser.add_argument("name", nargs="?", metavar="NAME|WORD", help=meaning, offers=flags.recipes_and_files)
    parser.add_argument("--all", action="store_true", help="list recipes for single machines as well")


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.run import recipe_text

    names = [name for name in flags.recipes_of() if (args.name or "").lower() in name.lower()]
    if args.name and (_is_name(args.name) or len(names) < 2):
        print(recipe_text(_find(args.name)), end="")
    else:
        print_lines(_listed(names, args.name or "", everything=args.all))


def _listed(names: list[str], word: str, *, everything: bool) -> Iterator[str]:
    from ordsmed.base.run import find_recipe, recipe_text
    from ordsmed.cli.verb import of_recipes

    verbs = of_recipes()
    hidden = [name for name in names if OF_A_MACHINE in name and not everything]
    hidden = [] if hidden == names else hidden  # if the search finds no others, list these
    for folder, members in itertools.groupby(
        sorted(set(names) - set(hidden), key=_place), lambda name: _place(name)[1]
    ):
        yield f"{folder}: {GROUPS.get(folder, '')}".rstrip(": ")
        heads = {name: recipe_text(find_recipe(name, "")).partition("\n")[0].lstrip("# ") for name in members}
        yield from table(
            (name.removeprefix(f"{folder}/") if folder in verbs else name, head) for name, head in heads.items()
        )
        yield ""
    if hidden:
        words = f" {word}" if word else ""
        title = f"{many(len(hidden), 'recipe')} for single machines (DGX) hidden"
        yield f"{title}; `ordsmed recipes{words} --all` lists all"
    yield "`ordsmed recipes NAME` prints one, to start your own from"


def _place(name: str) -> tuple[int, str, str]:
    """Return a sort key: first recipes to try, then from the corpus to the evaluation."""
    folder = name.split("/")[0]
    return (list(GROUPS).index(folder) if folder in GROUPS else len(GROUPS)), folder, name


def _is_name(name: str) -> bool:
    """Return whether this is the name of a recipe, with or without its folder, or a file."""
    from ordsmed.cli.verb import names

    verbs = [verb for verb in names() if f"{verb}/{name}" in flags.recipes_of()]
    return bool(verbs) or name in flags.recipes_of() or Path(name).is_file()


def _find(name: str) -> Path:
    """Return the path of a recipe file, or of a built-in recipe, which may be named without its folder.

    Among recipes of the same name, those of trainings come first.
    """
    from ordsmed.base.errors import RecipeError
    from ordsmed.base.run import find_recipe

    known = flags.recipes_of()
    if "/" in name or Path(name).is_file() or not (same := [recipe for recipe in known if recipe.endswith(f"/{name}")]):
        return find_recipe(name, name.split("/")[0] if "/" in name else "")
    recipes = [recipe for recipe in same if recipe.startswith(("pretrain/", "finetune/"))] or same
    if len(recipes) > 1:
        raise RecipeError(f"`{name}`", f"found {len(recipes)} recipes of this name", f"one of {', '.join(recipes)}")
    return find_recipe(recipes[0], "")
