"""A study: a pretraining or fine-tuning recipe, its folder, and a run per seed.

FOLDER/  recipe.toml status.json log.txt    the recipe that the seeds share
         seed-1.toml seed-1/                an ordinary run
         stability.json stability.md stability.svg stability.html
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.ranks import process_info
from ordsmed.base.run import Run
from ordsmed.base.say import many
from ordsmed.tell.show.show import PLANS, read
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.run_group import PlannedRun, RunGroup
from ordsmed.train.training import Training

HOME = Path("work") / "stability"
SEEDS = (1, 2, 3, 4, 5)
SHARED = ("seed", "seeds", "grid", "jobs", "out")  # settings that `stability` sets itself
ASKED = re.compile(r"(data|objective)($|[.\[])|validation_rows$|phase\[\d+\]\.length$|task\.(kind|name|dev|version)$")
KINDS: dict[str, type[Training]] = {"pretrain": Pretraining, "finetune": Finetuning}


@dataclass(frozen=True, kw_only=True)
class Study(RunGroup[PlannedRun]):
    """One recipe with several seeds."""

    name: str
    seeds: tuple[int, ...]

    noun = "seed"
    verb = FolderKind.STABILITY.value
    remains = "seed-*"
    problem = "holds seeds of another recipe, or of other data"
    wanted = "those of this recipe"

    @staticmethod
    def of(folder: Path, recipe: Training, seeds: Sequence[int], workers: int = 0, devices: int = 0) -> Study:
        runs = tuple(
            PlannedRun(f"seed-{seed}", replace(recipe, seed=seed, out=str(folder / f"seed-{seed}"))) for seed in seeds
        )
        return Study(
            folder=folder,
            recipe=recipe,
            runs=runs,
            plan=PLANS[recipe.verb],
            workers=workers,
            devices=devices,
            name=folder.name,
            seeds=tuple(seeds),
        )

    @property
    def facts(self) -> dict[str, Any]:
        return {"of": self.recipe.verb, "seeds": list(self.seeds)}


def requested(
    name: str,
    overrides: Sequence[str],
    seeds: Sequence[int] | None,
    home: Path | None = None,
    *,
    workers: int = 0,
    devices: int = 0,
) -> Study:
    if process_info(os.environ).world > 1:
        problem = f"found {many(process_info(os.environ).world, 'process')}"
        raise RecipeError("stability", problem, "one, as it starts its runs itself", "--devices N gives each run N")
    kind = kind_of_folder(name)
    if kind is FolderKind.STABILITY:
        return _resumed(Path(name), overrides, seeds, workers, devices)
    if kind.made:
        wanted = "a recipe of pretrain or finetune, or a folder written by `stability`"
        raise RecipeError(name, f"is a folder written by `{Run(Path(name)).status.get('verb')}`", wanted)
    words, out = without_out(overrides)
    recipe, verb = read(name, words)
    if not isinstance(recipe, Pretraining | Finetuning):
        raise RecipeError(name, f"is a recipe of `{verb}`", "one of pretrain or finetune")
    folder = Path(out) if out else (home or HOME) / run.title(name)
    run.output_folder(replace(recipe, out=str(folder)), "")  # raises an error for an impossible folder
    seeds = seeds or getattr(recipe, "seeds", ()) or SEEDS
    if recipe.axes or getattr(recipe, "step", None) == "all":
        key = "grid" if recipe.axes else "step"
        remedy = f"`ordsmed {verb}` compares trials; here each setting is a recipe"
        raise RecipeError(f"{name}: {key}", "found several settings", "one", remedy)
    return Study.of(folder, replace(recipe.alone(), seed=0, out=None), seeds, workers, devices)


def _resumed(folder: Path, overrides: Sequence[str], seeds: Sequence[int] | None, workers: int, devices: int) -> Study:
    if overrides:
        problem = f"exists, but {overrides[0]} is given"
        raise RecipeError(folder, problem, "", "it resumes with its own recipe; pass the recipe and another `out=`")
    status = Run(folder).status
    kind = KINDS.get(str(status.get("of")))
    if kind is None:
        raise RecipeError(folder, "does not record its kind of training", "", "pass its recipe instead")
    return Study.of(folder, run.read_recipe(kind, folder), seeds or status["seeds"], workers, devices)


def without_out(overrides: Sequence[str]) -> tuple[list[str], str]:
    """Split `out=` from the overrides; raise an error for settings that `--seeds` replaces."""
    words, out = [], ""
    for word in overrides:
        key, _, value = word.partition("=")
        if key == "out":
            out = value.strip("\"'")
        elif key in SHARED or key.startswith("grid."):
            remedy = {"jobs": "--workers N: concurrent runs"}.get(key, "--seeds 1..5 chooses the runs")
            raise RecipeError(key, f"found {word}", "settings that all seeds share", remedy)
        else:
            words.append(word)
    return words, out


def as_the_other(study: Study, compared_with: Study) -> Study:
    """Return a study with the precision of the existing one it is compared with, if neither sets a precision."""
    if compared_with.recipe.layout.precision != "auto":
        return study
    return study.with_precision(run.read_recipe(type(compared_with.recipe), compared_with.folder).layout.precision)


def unlike(settings: Iterable[str]) -> list[str]:
    """Return those of the settings that change the task or the data, so that scores are not comparable."""
    return [key for key in settings if ASKED.match(key)]


def differences(first: Training, second: Training) -> dict[str, tuple[Any, Any]]:
    from ordsmed.base.settings import flat, plain, renamed

    first_flat, second_flat = (
        flat(renamed(run.essence(recipe)) | {"layout": plain(recipe.layout)}) for recipe in (first, second)
    )
    return {
        key: (first_flat.get(key), second_flat.get(key))
        for key in sorted({*first_flat, *second_flat})
        if first_flat.get(key) != second_flat.get(key)
    }
