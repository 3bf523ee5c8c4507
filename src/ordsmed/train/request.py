"""Request: which recipe and folder the words of a training mean, with its layout fitted to the processes there are."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import RECIPE, kind_of_folder
from ordsmed.base.launch.site import site_layout
from ordsmed.base.ranks import place_of
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.train.callbacks import Callback
from ordsmed.train.mesh.layout import parse
from ordsmed.train.training import MAY_CHANGE, Training, check_seed

T = TypeVar("T", bound=Training)
BEGAN = "ORDSMED_BEGAN"  # when the command of a training began, on the clock of `time.time`: a deadline counts from it


@dataclass(frozen=True)
class Request:
    """A training that is asked for."""

    recipe: Training
    folder: Path  # where it stands, or would
    words: tuple[str, ...]  # name and overrides
    stands: bool = False  # the name is that of a run's folder
    devices: int = 0  # processes it is meant for; 0: as many as there are
    changed: str = ""  # of a run's own layout, in words
    anew: bool = False  # set the present run aside
    yes: bool = False  # although passes over the text, or the time, make no sense
    auto: bool = False  # in the layout that is fastest
    deadline: float | None = None  # seconds
    callbacks: tuple[Callback, ...] = ()  # beside those that the recipe names
    began: float = field(default_factory=lambda: float(os.environ.get(BEGAN) or time.time()))

    def tell(self) -> None:
        """What changes, where anything is left to be done; the first process does it."""
        if self.changed and place_of(os.environ).rank == 0 and Run(self.folder).status.get("state") != "done":
            say(f"{self.folder}: {self.changed}")


def requested(
    kind: type[Training], name: str, overrides: Sequence[str], layout: str, site: str, *, devices: int = 0,
    shown: bool = False,
) -> Request:  # fmt: skip
    """A run goes on by its own recipe; only its layout may be another.

    What is only `shown` lies on as many processes as its layout is for, or lay on last.
    """
    recipe = read(kind, name, overrides, site=site, layout=layout)
    folder, stands = folder_of(recipe, name), kind_of_folder(name).made
    changes = _asked_of_layout(overrides, layout, site)
    if shown and not devices:
        devices = _last(recipe, folder if stands else None, changes)
    words = (name, *overrides)
    if not stands:
        return Request(recipe, folder, words, devices=devices)
    recipe, changed = fitted_to(recipe, folder, devices or place_of(os.environ).world, changes)
    return Request(recipe, folder, words, True, devices, changed)


def read(
    kind: type[T], name: str, overrides: Sequence[str] = (), *, site: str = "", layout: str = "", file: str = RECIPE
) -> T:
    """The recipe of a training by the name of one, by its file or by a run's folder, changed as words and flags say.

    `file`: in which a folder keeps it. Of one run only what changes nothing of what is learned may be another.
    """
    stands = kind_of_folder(name).made
    table, place = (_recorded(kind, name, file), f"{name}/{file}") if stands else (table_of(kind, name), name)
    if stands and file == RECIPE and (refused := [word for word in overrides if not word.startswith(MAY_CHANGE)]):
        problem = f"is a run, but {refused[0]} is given"
        remedy = "a run goes on by its own recipe and any layout; `trouble` may change too"
        raise RecipeError(name, problem, "", remedy)
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    recipe = settings.decode(kind, settings.override(table, overrides), place)
    if layout and layout != "auto":
        recipe = replace(recipe, layout=parse(layout, recipe.layout))
    if not stands:
        check_seed(recipe, place)
    return recipe


def folder_of(recipe: run.Recipe, name: str) -> Path:
    """A run's folder, or that which a run of the recipe of this name has or will have."""
    return Path(name) if kind_of_folder(name).made else run.place(recipe, run.title(name))


def table_of(kind: type[Training], name: str) -> settings.Table:
    """What a recipe says before anything is changed."""
    return run.table_of(name, kind.verb)


def _recorded(kind: type[Training], name: str, file: str) -> settings.Table:
    """What the recipe in a folder of this training meant when it was written."""
    run.finished(Path(name), kind.verb)
    path = Path(name) / file
    return kind.as_recorded(settings.read(path) if path.exists() else {})


def _asked_of_layout(overrides: Sequence[str], layout: str, site: str) -> set[str]:
    """The settings of a layout that are asked for, beside those that a run keeps."""
    words = {word.partition("=")[0].split(".")[1] for word in overrides if word.startswith("layout.")}
    mesh = {"replicate", "shard", "tensor"} if layout not in ("", "auto") else set()
    return words | mesh | (set(site_layout(site)) if site else set())


def _last(recipe: Training, folder: Path | None, changes: set[str]) -> int:
    """As many processes as its layout is for, or lay on last."""
    before = Run(folder).status.get("layouts", []) if folder else []
    last: int = before[-1]["processes"] if before and not changes & {"replicate", "shard", "tensor"} else 0
    return last if last and last % recipe.layout.meant() == 0 else recipe.layout.meant()


def fitted_to(recipe: Training, folder: Path, world: int, changes: set[str]) -> tuple[Training, str]:
    """A run's recipe with its layout fitted to the processes there are today; and what that changes, in words."""
    layout, changed = recipe.layout.fitted(recipe.phases, world, Run(folder).status.get("layouts", []), asked=changes)
    if layout.device.startswith("cuda") and "device" not in changes and not torch.cuda.is_available():
        layout = replace(layout, device="auto")
        changed = "; ".join(
            [*([changed] if changed else []), f"there is no GPU: device {recipe.layout.device} became auto"]
        )
    return replace(recipe, layout=layout), changed
