"""The errors a user meets: four classes under one, each message with place, found, wanted and remedy.

OrdsmedError
  RecipeError   what was asked for cannot be (a recipe, a flag, an argument)
  DataError     what a file or folder holds is not what it should
  RunError      what happened on the way (a full disk)
    Trouble     what happened to a training (a loss that is not a number)
    Lost        a process of several is gone, or hangs: the same may go well elsewhere
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OrdsmedError(Exception):
    """One line: `place: found; wanted ...; remedy`. Exit status 1 at the command line."""

    status = 1
    echo = False  # of several processes the first one tells it

    def __init__(self, place: object, found: str, wanted: str = "", remedy: str = "") -> None:
        self.place, self.found, self.wanted, self.remedy = str(place), found, wanted, remedy
        parts = [f"{place}: {found}", f"wanted {wanted}" if wanted else "", remedy]
        message = "; ".join(part for part in parts if part)
        super().__init__(" ".join(message.split("\n")))  # names of files may have line ends in them

    def __reduce__(self) -> tuple[type[OrdsmedError], tuple[str, str, str, str]]:
        return type(self), (self.place, self.found, self.wanted, self.remedy)


class RecipeError(OrdsmedError):
    """What was asked for cannot be."""


class DataError(OrdsmedError):
    """What a file or folder holds is not what it should."""


class RunError(OrdsmedError):
    """What happened on the way."""


class Trouble(RunError):
    """The training itself is ill, and nothing is left to be done about it here; all ranks find the same."""


class Lost(RunError):
    """A process of several is gone, or hangs, and told no error of its own: the same may go well elsewhere."""

    status = 75  # as sysexits.h has it: a failure that passes


MANY = 40  # names that a line can take


def near(name: str, names: Iterable[str], cutoff: float = 0.55) -> list[str]:
    """The name that was most likely meant, if any is like it."""
    return difflib.get_close_matches(name, sorted(names), n=1, cutoff=cutoff)


def meant(name: str, names: Iterable[str]) -> str:
    """`did you mean X?`; empty where nothing is near."""
    alike = near(name, names)
    return f"did you mean `{alike[0]}`?" if alike else ""


def nearest(name: str, names: Iterable[str]) -> str:
    """`did you mean X?`, or the names where nothing is near."""
    names = sorted(names)
    if suggestion := meant(name, names):
        return suggestion
    more = f" ... and {len(names) - MANY // 4:,} others" if len(names) > MANY else ""
    return "there are: " + ", ".join(names[: MANY // 4] if more else names) + more
