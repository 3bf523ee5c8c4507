"""Request: which recipe and folder the words of a training mean, with its layout fitted to the processes there are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import RECIPE, kind_of_folder
from ordsmed.base.ranks import place_of
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.launch.site import site_layout
from ordsmed.mesh.layout import parse
from ordsmed.train.training import MAY_CHANGE, Training, check_seed


@dataclass(frozen=True)
class Request:
    """A training that is asked for."""

    recipe: Training
    folder: Path  # where it stands, or would
    stands: bool
    devices: int  # processes it is meant for; 0: as many as there are
    changed: str  # of a run's own layout, in words

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
    stands, folder = kind_of_folder(name).made, Path(name)
    if stands:
        run.finished(folder, kind.verb)
        other = [word for word in overrides if not word.startswith(MAY_CHANGE)]
        if other:
            raise RecipeError(
                name, f"is a run, but {other[0]} is given", "",
                "a run goes on by its own recipe and any layout; `trouble` may change too",
            )  # fmt: skip
        table = kind.as_recorded(settings.read(folder / RECIPE) if (folder / RECIPE).exists() else {})
        place = f"{name}/{RECIPE}"
    else:
        table, place = run.read_table(run.find_recipe(name, kind.verb), kind.verb), name
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    recipe = settings.decode(kind, settings.override(table, overrides), place)
    if layout and layout != "auto":
        recipe = replace(recipe, layout=parse(layout, recipe.layout))
    if not stands:
        check_seed(recipe, place)
    asked = _asked_of_layout(overrides, layout, site)
    if shown and not devices:
        devices = _last(recipe, folder if stands else None, asked)
    if not stands:
        return Request(recipe, run.place(recipe, run.title(name)), False, devices, "")
    recipe, changed = fitted_to(recipe, folder, devices or place_of(os.environ).world, asked)
    return Request(recipe, folder, True, devices, changed)


def _asked_of_layout(overrides: Sequence[str], layout: str, site: str) -> set[str]:
    """The settings of a layout that are asked for, beside those that a run keeps."""
    words = {word.partition("=")[0].split(".")[1] for word in overrides if word.startswith("layout.")}
    mesh = {"replicate", "shard", "tensor"} if layout not in ("", "auto") else set()
    return words | mesh | (set(site_layout(site)) if site else set())


def _last(recipe: Training, folder: Path | None, asked: set[str]) -> int:
    """As many processes as its layout is for, or lay on last."""
    before = Run(folder).status.get("layouts", []) if folder else []
    last: int = before[-1]["processes"] if before and not asked & {"replicate", "shard", "tensor"} else 0
    return last if last and last % recipe.layout.meant() == 0 else recipe.layout.meant()


def fitted_to(recipe: Training, folder: Path, world: int, asked: set[str]) -> tuple[Training, str]:
    """A run's recipe with its layout fitted to the processes there are today; and what that changes, in words."""
    layout, changed = recipe.layout.fitted(recipe.phases, world, Run(folder).status.get("layouts", []), asked=asked)
    if layout.device.startswith("cuda") and "device" not in asked and not torch.cuda.is_available():
        layout = replace(layout, device="auto")
        changed = "; ".join(
            [*([changed] if changed else []), f"there is no GPU: device {recipe.layout.device} became auto"]
        )
    return replace(recipe, layout=layout), changed
