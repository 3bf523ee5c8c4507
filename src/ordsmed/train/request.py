"""Request: the recipe and folder that the arguments of a training command mean, with a layout for its processes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, TypeVar

import torch

from ordsmed.base import run, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import RECIPE, kind_of_folder
from ordsmed.base.launch.site import site_layout
from ordsmed.base.ranks import process_info
from ordsmed.base.run import Run
from ordsmed.base.say import say
from ordsmed.train.callbacks import Callback
from ordsmed.train.mesh.layout import parse
from ordsmed.train.training import MAY_CHANGE, Training, check_seed

T = TypeVar("T", bound=Training)
BEGAN = "ORDSMED_BEGAN"  # when the training command started, by `time.time`: a deadline counts from it


class SessionOptions(TypedDict, total=False):
    deadline: float | None  # seconds
    anew: bool  # set the present run aside
    yes: bool  # train even if the passes over the text or the time are absurd
    layout: str  # a mesh, or auto
    site: str
    callbacks: Sequence[Callback]  # in addition to those in the recipe


@dataclass(frozen=True)
class Request:
    recipe: Training
    folder: Path  # of the run; it may not exist
    words: tuple[str, ...]  # name and overrides
    is_run: bool = False  # the name is the folder of a run
    devices: int = 0  # processes to start; 0: as many as there are
    changed: str = ""  # changes to the layout of a resumed run, as text
    anew: bool = False  # set the present run aside
    yes: bool = False  # even if the passes over the text or the time are absurd
    auto: bool = False  # find the fastest layout
    deadline: float | None = None  # seconds
    callbacks: tuple[Callback, ...] = ()  # in addition to those in the recipe
    began: float = field(default_factory=lambda: float(os.environ.get(BEGAN) or time.time()))

    def tell(self) -> None:
        if self.changed and process_info(os.environ).rank == 0 and Run(self.folder).status.get("state") != "done":
            say(f"{self.folder}: {self.changed}")


def requested(
    kind: type[Training],
    name: str,
    overrides: Sequence[str],
    layout: str,
    site: str,
    *,
    devices: int = 0,
    shown: bool = False,
) -> Request:
    """Return the request for a recipe, or for a run that is resumed by its recorded recipe.

    A request that is only `shown` is planned for as many processes as its layout names or the run last used.
    """
    recipe = read(kind, name, overrides, site=site, layout=layout)
    folder, is_run = folder_of(recipe, name), kind_of_folder(name).made
    changes = _layout_overrides(overrides, layout, site)
    if shown and not devices:
        devices = _last_process_count(recipe, folder if is_run else None, changes)
    words = (name, *overrides)
    if not is_run:
        return Request(recipe, folder, words, devices=devices)
    recipe, changed = fit_layout(recipe, folder, devices or process_info(os.environ).world, changes)
    return Request(recipe, folder, words, True, devices, changed)


def session_request(
    kind: type[Training], name: str, overrides: Sequence[str], options: SessionOptions, devices: int = 0
) -> Request:
    anew, layout = bool(options.get("anew")), options.get("layout", "")
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if anew and restarts and os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        problem = "found with torchrun's --max-restarts on several machines: every restart would set the run aside"
        raise RecipeError("--anew", problem, "", "rename the folder, or name another `out=`")
    request = requested(kind, name, overrides, layout, options.get("site", ""), devices=devices)
    callbacks, deadline, yes = tuple(options.get("callbacks", ())), options.get("deadline"), bool(options.get("yes"))
    auto = layout == "auto"
    return replace(request, anew=anew, yes=yes, auto=auto, deadline=deadline, callbacks=callbacks)


def read(
    kind: type[T], name: str, overrides: Sequence[str] = (), *, site: str = "", layout: str = "", file: str = RECIPE
) -> T:
    """Return the recipe with this name, file or run folder, changed by overrides and flags.

    `file` is the recipe's file name in a folder. A run accepts only changes that do not affect what is learned.
    """
    is_run = kind_of_folder(name).made
    table, location = (_recorded(kind, name, file), f"{name}/{file}") if is_run else (table_of(kind, name), name)
    if is_run and file == RECIPE and (refused := [word for word in overrides if not word.startswith(MAY_CHANGE)]):
        problem = f"is a run, which cannot be resumed with {refused[0]}"
        remedy = "a resumed run keeps its recipe; only `layout`, `trouble`, `callbacks` and `max_unknown` may change"
        raise RecipeError(name, problem, "", remedy)
    if site:
        table["layout"] = {**table.get("layout", {}), **site_layout(site)}
    recipe = settings.decode(kind, settings.override(table, overrides), location)
    if layout and layout != "auto":
        recipe = replace(recipe, layout=parse(layout, recipe.layout))
    if not is_run:
        check_seed(recipe, location)
    return recipe


def folder_of(recipe: run.Recipe, name: str) -> Path:
    return Path(name) if kind_of_folder(name).made else run.output_folder(recipe, run.title(name))


def table_of(kind: type[Training], name: str) -> settings.Table:
    return run.table_of(name, kind.verb)


def _recorded(kind: type[Training], name: str, file: str) -> settings.Table:
    """Return the table of the recipe in a run's folder, completed with the defaults of its time."""
    run.finished(Path(name), kind.verb)
    path = Path(name) / file
    return kind.as_recorded(settings.read(path) if path.exists() else {})


def _layout_overrides(overrides: Sequence[str], layout: str, site: str) -> set[str]:
    """Return the layout settings that the command sets."""
    words = {word.partition("=")[0].split(".")[1] for word in overrides if word.startswith("layout.")}
    mesh = {"replicate", "shard", "tensor"} if layout not in ("", "auto") else set()
    return words | mesh | (set(site_layout(site)) if site else set())


def _last_process_count(recipe: Training, folder: Path | None, changes: set[str]) -> int:
    """Return the number of processes that the run last used, or else that its layout needs."""
    before = Run(folder).status.get("layouts", []) if folder else []
    last: int = before[-1]["processes"] if before and not changes & {"replicate", "shard", "tensor"} else 0
    return last if last and last % recipe.layout.meant() == 0 else recipe.layout.meant()


def fit_layout(recipe: Training, folder: Path, world: int, changes: set[str]) -> tuple[Training, str]:
    """Return a run's recipe with its layout fitted to `world` processes, and the changes as text."""
    layout, changed = recipe.layout.fitted(recipe.phases, world, Run(folder).status.get("layouts", []), asked=changes)
    if layout.device.startswith("cuda") and "device" not in changes and not torch.cuda.is_available():
        layout = replace(layout, device="auto")
        changed = "; ".join([*([changed] if changed else []), f"no GPU: device {recipe.layout.device} became auto"])
    return replace(recipe, layout=layout), changed
