"""The recipe of an evaluation: models and the probes to run on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError, meant
from ordsmed.base.menu import Menu, entries, load
from ordsmed.base.other_names import answers


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Probes to run on every model, each with its files."""

    models: tuple[str, ...] = ()
    """runs, imported models or Hugging Face folders"""
    probe: Annotated[Any, Menu("probes", many=True)]
    """one or more probes"""
    step: int | Literal["all"] | None = None
    """checkpoint of a run; "all": every stored one; default: the last"""
    out: str | None = None
    """folder for results; default: `scores/` in the folder of each model"""

    verb: ClassVar[str] = "evaluate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probe", tuple(self.probe) if isinstance(self.probe, list | tuple) else (self.probe,))

    def stamp(self) -> Any:
        """Return nothing: every result stores its own key."""


def named(words: Sequence[Sequence[str]], **common: Any) -> tuple[Any, ...]:
    """Build probes from the words of the command line: `NAME FILE... key=value`.

    `common` holds settings from flags; each is passed to the probes that have it.
    """
    result, common, used = [], {key: value for key, value in common.items() if value is not None}, set[str]()
    for name, *arguments in words:
        if name not in entries("probes") and "." not in name:  # a name such as `my_lab.rhymes` is a user's module
            instead = next(answers("kinds", name, ["probes"]), "") or meant(name, entries("probes"))
            raise RecipeError("--probe", f"found {name}", " or ".join(entries("probes")), instead)
        changes = [word for word in arguments if _is_setting(word)]
        table = {"kind": name, "files": [word for word in arguments if word not in changes]}
        shared = {
            key: common[key] for key in common if key in load("probes", name, place="--probe").__dataclass_fields__
        }
        table, used = table | shared, used | set(shared)
        table = settings.override({"probe": table}, [f"probe.{word}" for word in changes])["probe"]
        result.append(settings.decode(Evaluation, {"probe": table}, f"--probe {name}").probe[0])
    if unused := [f"--{key}" for key in common if key not in used]:
        raise RecipeError(unused[0], "is not an option of any named probe", "`perplexity`, which samples windows")
    return tuple(result)


def _is_setting(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


def read(name: str, overrides: Sequence[str]) -> Evaluation:
    return run.load(Evaluation, name, overrides)[0]
