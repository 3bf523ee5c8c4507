"""The request of `make`: texts, time, purpose and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError, meant
from ordsmed.base.say import duration
from ordsmed.base.screen import command
from ordsmed.maker import networks
from ordsmed.maker.hours import Hours
from ordsmed.text.language import check_code

Purpose = Literal["", "fill", "write", "embed", "both", "search"]
SEARCH: Purpose = "search"
SHORTEST_HOURS, LONGEST_HOURS = 0.02, 24 * 60.0


@dataclass(frozen=True)
class MakeRequest:
    """A request for `make`, from arguments or a recipe."""

    verb: ClassVar[str] = "make"

    texts: tuple[str, ...]
    "files, folders, patterns, or the folder of a corpus"
    out: str
    "a new folder"
    hours: float = 1.0
    "time for everything"
    purpose: Purpose = ""
    "fill, write, embed, both or search; empty: the purpose of the kind, or else fill"
    kind: str = ""
    "kind of network; empty: the usual one for the purpose"
    start: str = ""
    "a model to continue training"
    devices: int = 0
    "number of processes, one per GPU (or share of the CPU)"
    site: str = ""
    "name of a site, whose layout is used"
    title: str = ""
    "title of the texts, for the model card and the page; empty: the name of their folder"
    language: str = ""
    "language of the texts, for the model card: en, nb, ...; empty: the detected one, if it is certain"
    licence: str = ""
    "licence of the texts and the model, for the model card"

    def __post_init__(self) -> None:
        if not self.texts:
            raise RecipeError("texts", "found none", "files, folders, patterns, or the folder of a corpus")
        if not SHORTEST_HOURS <= self.hours <= LONGEST_HOURS:
            wanted = f"{SHORTEST_HOURS:g} ({duration(SHORTEST_HOURS * 3600)}) to {LONGEST_HOURS:,.0f} (60 days)"
            raise RecipeError("--hours", f"found {self.hours:g}", wanted)
        known = networks.families()
        if self.kind and self.kind not in known:
            raise RecipeError("--kind", f"found {self.kind}", f"one of {' '.join(known)}", meant(self.kind, known))
        if not self.purpose:
            object.__setattr__(self, "purpose", known[self.kind].purposes[0] if self.kind else "fill")
        if self.kind and self.purpose not in known[self.kind].purposes:
            wanted = f"one of {' '.join(name for name, family in known.items() if self.purpose in family.purposes)}"
            remedy = f"{self.kind} is for {' or '.join(known[self.kind].purposes)}"
            raise RecipeError("--kind", f"{self.kind} with --for {self.purpose}", wanted, remedy)
        check_code("--language", self.language)
        if self.kind and self.start:
            raise RecipeError(
                "--kind", f"{self.kind} with --from", "one of them", "a model that is continued keeps its kind"
            )

    @property
    def time(self) -> Hours:
        return Hours(self.hours, search=self.purpose == SEARCH)

    @property
    def texts_title(self) -> str:
        """The title of the texts: as set, or the name of their folder or file; for several texts that of the model."""
        if self.title or self.texts == ("stdlib",):
            return self.title or "Documentation of Python's standard library"
        path = Path(self.texts[0]).expanduser() if len(self.texts) == 1 else Path(self.out)
        return path.resolve().name if path.is_dir() or len(self.texts) > 1 else path.name.partition(".")[0]

    @property
    def family(self) -> str:
        return self.kind or networks.usual(self.purpose)


def is_recipe(name: str) -> bool:
    """Return whether a name is a recipe of `make` instead of texts."""
    shipped = not Path(name).exists() and name in run.recipe_names()
    path = run.find_recipe(name, "") if shipped or Path(name).suffix == ".toml" else Path()
    return path.is_file() and "texts" in settings.read(path)


def of_recipe(name: str, overrides: Sequence[str] = (), **changes: object) -> MakeRequest:
    return _request(run.read_table(run.find_recipe(name, ""), MakeRequest.verb), overrides, changes, name)


def of_words(words: Sequence[str], **changes: object) -> MakeRequest:
    """Return the request of words such as `texts=FOLDER` and of keywords."""
    table = settings.override({}, words) | changes
    if not {"texts", "out"} <= table.keys():
        remedy = f"`{command(MakeRequest.verb, *(table.get(key, key.upper()) for key in ('texts', 'out')))}`"
        words_given = " ".join(str(table[key]) for key in ("texts", "out") if key in table)
        like = "" if Path(words_given).exists() else meant(words_given, run.recipe_names())
        raise RecipeError(
            MakeRequest.verb, f"found {words_given} alone", "TEXTS OUT, or a recipe of `make`", like or remedy
        )
    return _request({}, words, changes, MakeRequest.verb)


def _request(table: settings.Table, words: Sequence[str], changes: Mapping[str, object], location: str) -> MakeRequest:
    table = {**settings.override(table, words), **changes}
    if isinstance(table.get("texts"), str):
        table["texts"] = [table["texts"]]
    return settings.decode(MakeRequest, table, location)
