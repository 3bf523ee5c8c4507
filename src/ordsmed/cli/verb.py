"""Verbs of the command line. Each verb is a file in verbs/ with its arguments, its help and its code.

The docstring of the file is the text that `ordsmed help` prints. The file also has

    PLACE = ("make", 3)                               group and position in the list of verbs
    RECIPE = "ordsmed.data.encode:Encoding"           class of the verb's recipe, if it has one
    STOPPED = GOES_ON                                 or BEGINS_AGAIN: what the same command does after it was stopped
    OTHERS_BEHIND = 2                                 the words after the second argument are for another program
    def look_up(word) -> list[str]                    lines for `ordsmed help WORD`, if no other verb knows the word

and the functions `arguments(parser)` and `run(args)`. Slow imports are inside `run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ordsmed.base import menu, other_names
from ordsmed.base.arguments import NEVER_MEANT, Parser, UsageError
from ordsmed.base.errors import MAX_SUGGESTED, meant, near, same_name
from ordsmed.base.screen import columns, command, fitted
from ordsmed.cli.output import all_settings

MENU = "verbs"
GROUPS = ("make", "train", "evaluate", "use", "machines", "inspect")
FORMER = {"judge": "evaluate", "look": "inspect"}  # former names of groups, which users' verbs may still have


@dataclass(frozen=True)
class Verb:
    name: str
    doc: str
    group: str
    order: int
    recipe: tuple[str, str] | None  # module and class of the settings of its recipe
    stopped: str
    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]
    others_behind: int = 0
    look_up: Callable[[str], list[str]] | None = None

    def own(self, words: Sequence[str]) -> list[str]:
        """Return the words for this verb's parser, without those for another program (OTHERS_BEHIND)."""
        ends = [end for end, word in enumerate(words, 1) if not word.startswith("-")]
        return list(words[: ends[self.others_behind - 1]] if 0 < self.others_behind <= len(ends) else words)

    @property
    def headline(self) -> str:
        return self.doc.split("\n")[0]

    def parser(self, *, helped: bool = False) -> Parser:
        """Return the verb's parser. `helped` adds the settings of the recipe to the help text, which is slow."""
        settings = [line.name for line in menu.lines(*self.recipe)] if self.recipe else []
        form = argparse.RawDescriptionHelpFormatter
        parser = Parser(
            self.name, owners=owners, settings=settings, elsewhere=self.settings_meant, formatter_class=form
        )
        parser.description = "\n".join(
            part for line in self.doc.split("\n") for part in fitted(line, columns(sys.stdout))
        )
        parser.epilog = self._settings() if helped else ""
        self.arguments(parser)
        return parser

    def settings_called(self, name: str) -> list[str]:
        """Return the paths of the recipe's settings that are called `name` in another code."""
        known = menu.names_in_other_codes(*self.recipe) if self.recipe else ()
        return list(dict.fromkeys(path for alias, path, _ in known if alias == name))

    def settings_meant(self, name: str) -> list[str]:
        """Return the paths of the recipe's settings with this or a similar name, here or in other codes."""
        if not self.recipe:
            return []
        paths: dict[str, list[str]] = {}
        for table in menu.nested(*self.recipe):
            for line in menu.lines(table.module, table.name):
                paths.setdefault(line.name, []).append(f"{table.key}.{line.name}")
        for alias, path, _ in menu.names_in_other_codes(*self.recipe):
            paths.setdefault(alias, []).append(path)
        alike = [name] if name in paths else near(name, [*paths, *(line.name for line in menu.lines(*self.recipe))])
        return list(dict.fromkeys(path for known in alike for path in paths.get(known, [known])))

    def _settings(self) -> str:
        if not self.recipe:
            return ""
        last = "`ordsmed menus NAME` lists the choices of `one of ...`"
        return "\n".join(["settings of the recipe:", *all_settings(*self.recipe), "", last])


def of_recipes() -> list[str]:
    return [verb.name for verb in every() if verb.recipe]


def names() -> list[str]:
    return [name_of(stem) for stem in menu.entries(MENU)]


def name_of(stem: str) -> str:
    """Return a verb's name: `corpus_stats.py` is `corpus stats`, `import_.py` is `import`."""
    return stem.rstrip("_").replace("_", " ")


def find(name: str) -> Verb:
    stem = next((stem for stem in menu.entries(MENU) if name_of(stem) == name), None)
    if stem is None:
        for add_on, stems in menu.ADD_ONS[MENU].items():
            if name in map(name_of, stems):
                problem = f"is part of the add-on ordsmed.{add_on}, which is not installed"
                raise UsageError(f"`{name}`", problem, "", menu.INSTALL_WHOLE)
        raise UsageError(f"`{name}`", "no such verb", "", _instead(name))
    module = menu.import_choice(MENU, stem)
    group, order = module.PLACE
    recipe = getattr(module, "RECIPE", "")
    location = (recipe.partition(":")[0], recipe.partition(":")[2]) if recipe else None
    stopped = getattr(module, "STOPPED", "")
    arguments_before = getattr(module, "OTHERS_BEHIND", 0)
    doc = (module.__doc__ or "").strip()
    return Verb(
        name,
        doc,
        FORMER.get(group, group),
        order,
        location,
        stopped,
        module.arguments,
        module.run,
        arguments_before,
        getattr(module, "look_up", None),
    )


def every() -> list[Verb]:
    return sorted(map(find, names()), key=lambda verb: (GROUPS.index(verb.group), verb.order, verb.name))


def named(words: Sequence[str]) -> str:
    """Return the name of the verb, which is the first word or the first two."""
    two = " ".join(words[:2])
    return two if two in names() else words[0]


def owners(flag: str) -> str:
    """Return a sentence that names the verbs with a flag; "" if no verb has it."""
    known = {verb.name: verb.parser().flags() for verb in every()}
    alike = next((word for words in known.values() for word in words if same_name(word, flag)), "")
    verbs = [f"`{name}`" for name, words in known.items() if alike in words and alike not in NEVER_MEANT]
    more = f" and {len(verbs) - MAX_SUGGESTED} others" if len(verbs) > MAX_SUGGESTED + 1 else ""
    return f"{alike} is a flag of {', '.join(verbs[:MAX_SUGGESTED] if more else verbs)}{more}" if verbs else ""


def _instead(word: str) -> str:
    """Return a suggestion for a word that is not a verb."""
    from ordsmed.base.run import GENERAL_FOLDERS, recipe_names

    if instead := next(other_names.answers("verbs", word), ""):
        return instead
    if word in recipe_names() and word.split("/")[0] in GENERAL_FOLDERS:
        return f"use the recipe: `{command('make' if word == 'tiny/search' else 'pretrain', word)}`"
    if Path(word).exists():
        return f"`{command('make', word, 'OUT')}` makes a model from texts"
    return meant(word, names()) or "`ordsmed help` lists the verbs; the first is `ordsmed make TEXTS OUT`"
