"""list what a recipe can choose from; with a menu or an entry: all settings"""

from __future__ import annotations

import argparse

from ordsmed.base import menu
from ordsmed.base.arguments import Parser
from ordsmed.base.errors import RecipeError, meant, nearest
from ordsmed.base.screen import command
from ordsmed.cli.output import all_settings, print_lines

PLACE = ("inspect", 3)


def arguments(parser: Parser) -> None:
    parser.add_argument("menu", nargs="?", metavar="MENU", help=" ".join(menu.MENUS), offers=lambda: menu.MENUS)
    parser.add_argument("kind", nargs="?", metavar="KIND", help="an entry of the menu", offers=kinds)


def kinds() -> list[str]:
    return sorted({kind for name in menu.MENUS for kind in menu.entries(name)})


def run(args: argparse.Namespace) -> None:
    for name in [args.menu] if args.menu else menu.MENUS:
        _check(name, args.kind)
        print_lines([name])
        for kind in [args.kind] if args.kind else menu.entries(name):
            module = menu.module_of(name, kind)
            print_lines([f"  {kind:<13}  {menu.headline(module)}"])
            if args.menu:
                print_lines(all_settings(module, indent=" " * 6))


def _check(name: str, kind: str | None) -> None:
    if name not in menu.MENUS:
        inside = [f"`{command('menus', choices, name)}`" for choices in menu.MENUS if name in menu.entries(choices)]
        raise RecipeError(
            f"`{name}`", "no such menu", "", meant(name, menu.MENUS) or " or ".join(inside) or nearest(name, menu.MENUS)
        )
    if kind is None or kind in menu.entries(name):
        return
    if "." not in kind:
        raise RecipeError(f"`{kind}`", f"is not in {name}", "", nearest(kind, menu.entries(name)))
    menu.load(name, kind, place="menus")  # raises an error about a user's module
