"""the built-in recipes; with a name: its text, to begin your own with

`ordsmed recipes electra-small > mine.toml`, then `ordsmed pretrain mine.toml`: it works from any folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ordsmed.base.arguments import Parser
from ordsmed.cli import flags
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 3)


def arguments(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this one", offers=flags.recipes_and_files)


def run(args: argparse.Namespace) -> None:
    from ordsmed.base.run import find_recipe, recipe_text

    if args.name:
        print(recipe_text(_find(args.name)), end="")
        return
    for name in flags.recipes_of():
        first = recipe_text(find_recipe(name, "")).splitlines()[0]
        print_lines([f"  {name:<28}  {first.lstrip('# ')}"])


def _find(name: str) -> Path:
    """A recipe by its name, with or without its folder (trainings first); or a file."""
    from ordsmed.base.errors import RecipeError
    from ordsmed.base.run import find_recipe

    known = flags.recipes_of()
    if "/" in name or Path(name).is_file() or not (same := [recipe for recipe in known if recipe.endswith(f"/{name}")]):
        return find_recipe(name, name.split("/")[0] if "/" in name else "")
    recipes = [recipe for recipe in same if recipe.startswith(("pretrain/", "finetune/"))] or same
    if len(recipes) > 1:
        raise RecipeError(f"`{name}`", f"found {len(recipes)} recipes of this name", f"one of {', '.join(recipes)}")
    return find_recipe(recipes[0], "")
