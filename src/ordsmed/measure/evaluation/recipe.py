"""The recipe of an evaluation: which models are asked which probes."""

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
    """Probes, each of some files, asked of every model."""

    models: tuple[str, ...] = ()
    """runs, imports or Hugging Face folders"""
    probe: Annotated[Any, Menu("probes", many=True)]
    """what is asked, one or more"""
    step: int | Literal["all"] | None = None
    """of a run: this checkpoint; "all": each that is kept; left out: its last"""
    out: str | None = None
    """where results are put; left out: `scores/` in the folder of each model"""

    verb: ClassVar[str] = "evaluate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probe", tuple(self.probe) if isinstance(self.probe, list | tuple) else (self.probe,))

    def stamp(self) -> Any:
        """Nothing: what a result depends on is its own key."""


def named(words: Sequence[Sequence[str]], **common: Any) -> tuple[Any, ...]:
    """Probes as the command line names them: `NAME FILE... key=value`; `common` goes to those that know it."""
    result, common, taken = [], {key: value for key, value in common.items() if value is not None}, set[str]()
    for name, *rest in words:
        if name not in entries("probes") and "." not in name:  # `my_lab.rhymes` is a module of somebody's own
            instead = next(answers("kinds", name, ["probes"]), "") or meant(name, entries("probes"))
            raise RecipeError("--probe", f"found {name}", " or ".join(entries("probes")), instead)
        changes = [word for word in rest if _is_setting(word)]
        table = {"kind": name, "files": [word for word in rest if word not in changes]}
        shared = {
            key: common[key] for key in common if key in load("probes", name, place="--probe").__dataclass_fields__
        }
        table, taken = table | shared, taken | set(shared)
        table = settings.override({"probe": table}, [f"probe.{word}" for word in changes])["probe"]
        result.append(settings.decode(Evaluation, {"probe": table}, f"--probe {name}").probe[0])
    if left := [f"--{key}" for key in common if key not in taken]:
        raise RecipeError(left[0], "is of no probe that is named", "`perplexity`, which draws windows")
    return tuple(result)


def _is_setting(word: str) -> bool:
    key, equals, _ = word.partition("=")
    return bool(equals) and key.isidentifier()


def read(name: str, overrides: Sequence[str]) -> Evaluation:
    """A built-in recipe by name, or a TOML file."""
    return run.load(Evaluation, name, overrides)[0]
