"""list the verbs; with a verb: print its words, flags and settings; with a word of the field: its name here

`ordsmed help EMA`, `ordsmed help gradient accumulation`; `ordsmed help words` lists all words. A flag of another code
(`ordsmed help deep-init`) is looked up as `ordsmed as --find` does.
"""

from __future__ import annotations

import argparse

from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.errors import meant
from ordsmed.base.menu import MENUS
from ordsmed.base.screen import command
from ordsmed.cli import overview, verb, words
from ordsmed.cli.output import print_lines

PLACE = ("inspect", 9)


def arguments(parser: Parser) -> None:
    meaning = "a verb, for its arguments; or a word of the field, for its name here"
    parser.add_argument("of", nargs="*", metavar="VERB|WORD", help=meaning, offers=words_of_verbs)


def words_of_verbs() -> list[str]:
    """Return the words of verbs, separately: `corpus stats` is two words to a shell."""
    return sorted({word for name in verb.names() for word in name.split()})


def choices(name: str) -> list[tuple[str, str]]:
    """Return (menu, how to list its choices) for the name of a menu, in the plural or singular."""
    menus = [menu for menu in MENUS if name.lower() in (menu, menu.removesuffix("s"))]
    return [(menu, f"`{command('menus', menu)}` lists its choices and their settings") for menu in menus]


def settings_called(name: str) -> list[str]:
    """Return the settings that have this name in other codes, with the verbs whose recipes have them."""
    verbs: dict[str, list[str]] = {}
    for entry in verb.every():
        for path in entry.settings_called(name.replace("-", "_")):
            verbs.setdefault(path, []).append(entry.name)
    return [f"{name}: the setting `{path}` of {', '.join(verbs[path])}" for path in verbs]


def run(args: argparse.Namespace) -> None:
    text = " ".join(args.of)
    if not text:
        print_lines(overview.verbs_in_groups())
    elif text in verb.names():
        verb.find(text).parser(helped=True).print_help()
    elif rows := words.rows() if text == "words" else [*choices(text), *words.lookup(text)]:
        print_lines(f"{names}: {here}" for names, here in rows)
    elif settings := settings_called(text):
        print_lines(settings)
    elif lines := [line for entry in verb.every() if entry.look_up for line in entry.look_up(text)]:
        print_lines(lines)
    else:
        known = [*verb.names(), *words.names()]
        raise UsageError(f"`{text}`", "no such verb or word", "one of `ordsmed help words`", meant(text, known))
