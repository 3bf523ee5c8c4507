"""A track: the rules that all its entries share; and the request of a speedrun."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError, meant
from ordsmed.base.menu import Menu
from ordsmed.data.word_counts import WordNumbers

VERB = "speedrun"


@dataclass(frozen=True, kw_only=True)
class Track:
    """A budget, a sample of text, and rules for their use."""

    verb: ClassVar[str] = VERB

    flops: float
    """operations of training: three times those of the forward pass, with the heads at the scored positions"""
    tokenizer: Annotated[Any, Menu("tokenizers")]
    """the tokenizer to learn from the sample; all recipes use it"""
    recipes: dict[str, str]
    """recipes of pretraining by kind of model, the first is the default; their steps follow from the budget"""
    words: int = 10_000_000
    """largest number of words of training text"""
    passes: float = 10.0
    """largest number of passes over the training text"""
    validation: float = 0.02
    """share of the documents that are held out"""
    longest: int = 20_000
    """characters of a document; longer ones are split at line ends, and each part is drawn alone; not for markup"""
    seeds: tuple[int, ...] = (1, 2, 3)
    """an entry needs a run with each of these seeds"""
    scored: int = 4_000
    """words of held-out text on which a masked model is scored, with a pass for each word"""
    revisions_at_words: WordNumbers = ()
    """numbers of words after which a run saves a revision of its weights, like pretraining's setting of this name; a
    recipe may set others"""

    def __post_init__(self) -> None:
        for name in ("flops", "words", "passes", "validation"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name}: found {getattr(self, name):g}; wanted a number above 0")
        if not self.recipes:
            raise ValueError("recipes: found none; wanted a recipe of pretraining or more")
        if not getattr(self.tokenizer, "size", 0):
            raise ValueError("tokenizer.size: missing; wanted a tokenizer that says how many pieces it learns")


@dataclass(frozen=True)
class SpeedrunRequest:
    verb: ClassVar[str] = VERB

    track: str
    texts: tuple[str, ...]
    out: str
    kind: str = ""
    """kind of model, one of the track's; empty: its first"""
    recipe: str = ""
    """recipe of pretraining, instead of the track's"""
    changes: tuple[str, ...] = ()
    """overrides of the track or the recipe"""
    budgets: tuple[float, ...] = (1.0,)
    """multiples of the track's budget"""
    seeds: tuple[int, ...] = ()
    """empty: those of the track"""
    blimp: str = ""
    """folder or file of minimal pairs"""
    workers: int = 0
    """concurrent runs; 0: one per GPU, on a CPU one per two cores"""
    yes: bool = False
    """allow too many passes over the text, or too much time"""
    rules: settings.Table = field(default_factory=dict)
    """the table of the track, to repeat an entry by its own rules"""
    table: settings.Table = field(default_factory=dict)
    """the table of the pretraining recipe, to repeat an entry"""

    def __post_init__(self) -> None:
        if not self.texts:
            raise RecipeError("texts", "found none", "files, folders, patterns, or the folder of a corpus")
        if wrong := [budget for budget in self.budgets if not 0 < budget < math.inf]:
            raise RecipeError("--budget", f"found {wrong[0]:g}", "numbers above 0: times the budget of the track")
        if len(set(self.budgets)) < len(self.budgets):
            raise RecipeError("--budget", "found the same number twice", "different ones")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds, default=0) < 0:
            raise RecipeError("--seeds", f"found {', '.join(map(str, self.seeds))}", "different numbers, 0 or more")
        if self.workers < 0:
            raise RecipeError("--workers", f"found {self.workers}", "1 or more; left out: as many as fit")
        if self.kind and self.recipe:
            raise RecipeError("--recipe", f"found with --kind {self.kind}", "one of them")
        if self.kind and self.kind not in self.rule.recipes:
            known = self.rule.recipes
            raise RecipeError("--kind", f"found {self.kind}", f"one of {', '.join(known)}", meant(self.kind, known))
        if self.blimp and not Path(self.blimp).exists():
            raise RecipeError("--blimp", f"{self.blimp} does not exist", "a folder of minimal pairs in JSON lines")

    @property
    def rule(self) -> Track:
        if self.rules:
            return settings.decode(Track, self.rules, self.track)
        return track(self.track, [word for word in self.changes if _first(word) in OF_TRACK])

    @property
    def learned(self) -> settings.Table:
        """The table of the pretraining recipe with the request's changes."""
        if self.table:
            return self.table
        rule = self.rule
        name = self.recipe or rule.recipes[self.kind or next(iter(rule.recipes))]
        table = run.read_table(run.find_recipe(name, "pretrain"), "pretrain")
        words = [word for word in self.changes if _first(word) not in OF_TRACK]
        if wrong := [key for key in map(_first, words) if key in DECIDED]:
            raise RecipeError(wrong[0], "found among changes of the recipe", "what the track leaves open")
        kept = {KEPT: settings.plain(rule)[KEPT]} if rule.revisions_at_words else {}
        return {**kept, **settings.override(table, words)}


OF_TRACK = tuple(field.name for field in fields(Track))  # settings of overrides that change the track
KEPT = "revisions_at_words"  # a setting of both track and recipe; scores do not depend on it
DECIDED = ("seed", "grid", "data", "out", "jobs")  # settings of the recipe that the track decides


def _first(word: str) -> str:
    return re.split(r"[.\[=]", word)[0]


def track(name: str, changes: Sequence[str] = ()) -> Track:
    table = run.read_table(run.find_recipe(name, VERB), VERB)
    return settings.decode(Track, settings.override(table, changes), name)


def is_track(name: str) -> bool:
    if name in run.recipe_names():
        return name.startswith(f"{VERB}/")
    path = Path(name)
    return path.suffix == ".toml" and path.is_file() and "flops" in settings.read(path)


def tracks() -> Sequence[str]:
    return [name.removeprefix(f"{VERB}/") for name in run.recipe_names(VERB)]
