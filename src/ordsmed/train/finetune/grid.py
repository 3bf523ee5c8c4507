"""Which trials there are: a recipe's checkpoints, combinations of settings and seeds, each with a recipe of its own."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordsmed.base import settings
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.say import say
from ordsmed.train import meters
from ordsmed.train.finetune.finish import found_in, numbers
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.several import PlannedRun
from ordsmed.train.training import named
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained import open_model

MOST = 10_000  # trials: more are a mistake


@dataclass(frozen=True)
class Trial(PlannedRun):
    """One fine-tuning among others."""

    recipe: Finetuning
    setting: dict[str, Any]  # in what it differs from others, beside its seed

    @property
    def facts(self) -> dict[str, Any]:
        """What it found, once it is done."""
        return found_in(self.folder)

    @property
    def scores(self) -> dict[str, float]:
        return numbers(self.facts)

    @property
    def seconds(self) -> float:
        path = self.folder / "metrics.jsonl"
        lines = meters.read(path) if path.exists() else []
        return round(sum(float(line.get("seconds", 0.0)) for line in lines), 1)


def plan(recipe: Finetuning, folder: Path, place: str) -> list[Trial]:
    """A trial for each checkpoint, combination of settings and seed."""
    axes: dict[str, Sequence[Any]] = dict(recipe.grid)
    if recipe.step == "all":
        with named(place, Finetuning):
            axes = {"step": _steps(recipe.init), **axes}
    last = [path.rpartition(".")[2] for path in axes]
    short = [name if last.count(name) == 1 else path for path, name in zip(axes, last, strict=True)]
    alone = replace(recipe, seeds=(), grid={}, jobs=0, step=None if recipe.step == "all" else recipe.step)
    seeds = recipe.seeds or (recipe.seed,)
    if (count := math.prod(map(len, [*axes.values(), seeds]))) > MOST:
        raise RecipeError(f"{place}: grid", f"found {count:,} trials", f"at most {MOST:,}", "leave some values out")
    trials = []
    for *values, seed in itertools.product(*axes.values(), seeds):
        setting = dict(zip(short, values, strict=True))
        title = ",".join(f"{key}-{_in_a_name(value)}" for key, value in [*setting.items(), ("seed", seed)])
        pairs = zip([*axes, "seed"], [*values, seed], strict=True)
        words = [f"{path}={settings.literal(value)}" for path, value in pairs]
        table = settings.override(settings.plain(alone), words) | {"out": str(folder / "trials" / title)}
        trials.append(Trial(title, settings.decode(Finetuning, table, place), setting))
    seen: dict[str, str] = {}
    for trial in trials:
        for key in (trial.name, settings.write(replace(trial.recipe, out=None))):
            if key in seen:
                raise RecipeError(
                    f"{place}: grid", f"{seen[key]} and {trial.name} are the same trial", "different ones"
                )
            seen[key] = trial.name
    return trials


def _steps(init: str | None) -> list[int]:
    """The checkpoints of a run; the weights it began with among them, where they can be made again."""
    origin = Origin.of(init, key="init") if init is not None else None
    if origin is None or not origin.is_run:
        raise RecipeError("step", f"found all, but {init} is no run", "a run's folder as `init`")
    steps = origin.steps()
    try:
        if 0 in steps:
            open_model(origin, 0)
    except OrdsmedError as error:
        say(f"step 0 is left out: {error}")
        steps.remove(0)
    return steps


def _in_a_name(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")[-60:]
