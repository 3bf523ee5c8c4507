"""A verb of the command line: found as a file of verbs/, with its words, its help and what it does.

Such a file says in its docstring what `ordsmed help` prints of it; further

    PLACE = ("make", 3)                               where the list of verbs has it: a group, and a number in it
    RECIPE = "ordsmed.data.encode:Encoding"           where it takes a recipe: the settings of one
    STOPPED = GOES_ON                                 or BEGINS_AGAIN: what a person can do who stopped it
    OTHERS_BEHIND = 2                                 words behind so many (and flags before them) are read by others

and has `arguments(parser)` and `run(asked)`, which alone imports what is slow to import.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ordsmed.base import menu
from ordsmed.base.arguments import Parser, UsageError
from ordsmed.base.errors import nearest
from ordsmed.base.screen import columns, fitted
from ordsmed.cli.output import all_settings

MENU = "verbs"
GROUPS = ("make", "train", "evaluate", "use", "machines", "inspect")
FORMER = {"judge": "evaluate", "look": "inspect"}  # groups as verbs of somebody's own may still call them


@dataclass(frozen=True)
class Verb:
    """What a file of verbs/ says."""

    name: str
    doc: str
    group: str
    order: int
    recipe: tuple[str, str] | None  # module and class of the settings of its recipe
    stopped: str
    arguments: Callable[[Parser], None]
    run: Callable[[argparse.Namespace], None]
    others_behind: int = 0

    def own(self, words: Sequence[str]) -> list[str]:
        """The words that it reads itself."""
        ends = [end for end, word in enumerate(words, 1) if not word.startswith("-")]
        return list(words[: ends[self.others_behind - 1]] if 0 < self.others_behind <= len(ends) else words)

    @property
    def headline(self) -> str:
        """What it does, in a line."""
        return self.doc.split("\n")[0]

    def parser(self, *, helped: bool = False) -> Parser:
        """The parser of its words; with what help tells below them, which takes a while to read."""
        settings = [line.name for line in menu.lines(*self.recipe)] if self.recipe else []
        form = argparse.RawDescriptionHelpFormatter
        parser = Parser(
            self.name, owners=owners, settings=settings, elsewhere=self.settings_called, formatter_class=form
        )
        parser.description = "\n".join(
            part for line in self.doc.split("\n") for part in fitted(line, columns(sys.stdout))
        )
        parser.epilog = self._settings() if helped else ""
        self.arguments(parser)
        return parser

    def settings_called(self, name: str) -> list[str]:
        """The settings of its recipe that other codes call so."""
        known = menu.names_in_other_codes(*self.recipe) if self.recipe else ()
        return list(dict.fromkeys(path for alias, path, _ in known if alias == name))

    def _settings(self) -> str:
        """The settings of its recipe, from the settings themselves."""
        if not self.recipe:
            return ""
        last = "`ordsmed menus NAME` prints what stands behind `one of ...`"
        return "\n".join(["settings of the recipe:", *all_settings(*self.recipe), "", last])


def of_recipes() -> list[str]:
    """Those that take recipes, which folders of these are named by."""
    return [verb.name for verb in every() if verb.recipe]


def names() -> list[str]:
    return [name_of(stem) for stem in menu.entries(MENU)]


def name_of(stem: str) -> str:
    """`corpus_stats.py` is `corpus stats`, `import_.py` is `import`."""
    return stem.rstrip("_").replace("_", " ")


def find(name: str) -> Verb:
    """A verb by its name."""
    stem = next((stem for stem in menu.entries(MENU) if name_of(stem) == name), None)
    if stem is None:
        raise UsageError(f"`{name}`", "no such verb", "", nearest(name, names()))
    module = menu.opened(MENU, stem)
    group, order = module.PLACE
    recipe = getattr(module, "RECIPE", "")
    place = (recipe.partition(":")[0], recipe.partition(":")[2]) if recipe else None
    stopped = getattr(module, "STOPPED", "")
    behind = getattr(module, "OTHERS_BEHIND", 0)
    doc = (module.__doc__ or "").strip()
    return Verb(name, doc, FORMER.get(group, group), order, place, stopped, module.arguments, module.run, behind)


def every() -> list[Verb]:
    """All verbs, in the order of the list."""
    return sorted(map(find, names()), key=lambda verb: (GROUPS.index(verb.group), verb.order, verb.name))


def named(words: Sequence[str]) -> str:
    """The verb that words begin with: the longest there is."""
    two = " ".join(words[:2])
    return two if two in names() else words[0]


def owners(flag: str) -> str:
    """Which verbs know a flag, or one much like it."""
    known = {verb.name: verb.parser().flags() for verb in every()}
    near = difflib.get_close_matches(flag, {word for words in known.values() for word in words}, n=1, cutoff=0.8)
    verbs = [f"`{name}`" for name, words in known.items() if near and near[0] in words]
    return f"{near[0]} is a flag of {', '.join(verbs)}" if near else ""
