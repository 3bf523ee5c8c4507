"""Trials of a recipe: one for each combination of the grid's settings and seeds, each with a complete recipe."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.say import many
from ordsmed.train import meters
from ordsmed.train.run_group import PlannedRun
from ordsmed.train.scores import read_scores
from ordsmed.train.training import Training

MOST = 10_000  # trials; more are likely a mistake


@dataclass(frozen=True)
class Trial(PlannedRun):
    setting: dict[str, Any]  # the settings in which trials differ, without the seed

    @property
    def facts(self) -> dict[str, Any]:
        return read_scores(self.folder)

    @property
    def scores(self) -> dict[str, float]:
        return self.recipe.compared_by(self.facts)

    @property
    def seconds(self) -> float:
        path = self.folder / "metrics.jsonl"
        lines = meters.read(path) if path.exists() else []
        return round(sum(float(line.get("seconds", 0.0)) for line in lines), 1)


def plan(recipe: Training, folder: Path, location: str, more: Mapping[str, Sequence[Any]]) -> list[Trial]:
    """Return a trial for each combination of settings and seed; `more` are axes in addition to those of the grid."""
    axes = {**more, **recipe.axes}
    last = [path.rpartition(".")[2] for path in axes]
    short = [name if last.count(name) == 1 else path for path, name in zip(axes, last, strict=True)]
    alone = recipe.alone()
    seeds = getattr(recipe, "seeds", ()) or (recipe.seed,)
    if (count := math.prod(map(len, [*axes.values(), seeds]))) > MOST:
        raise RecipeError(f"{location}: grid", f"found {many(count, 'trial')}", f"at most {MOST:,}", "use fewer values")
    trials = []
    for *values, seed in itertools.product(*axes.values(), seeds):
        setting = dict(zip(short, values, strict=True))
        title = ",".join(f"{key}-{_in_a_name(value)}" for key, value in [*setting.items(), ("seed", seed)])
        pairs = zip([*axes, "seed"], [*values, seed], strict=True)
        words = [f"{path}={settings.literal(value)}" for path, value in pairs]
        table = settings.override(settings.plain(alone), words) | {"out": str(folder / "trials" / title)}
        trials.append(Trial(title, settings.decode(type(recipe), table, location), setting))
    seen: dict[str, str] = {}
    for trial in trials:
        for key in (trial.name, settings.write(replace(trial.recipe, out=None))):
            if key in seen:
                raise RecipeError(f"{location}: grid", f"{seen[key]} and {trial.name} are the same trial", "others")
            seen[key] = trial.name
    return trials


def _in_a_name(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^\w.+-]+", "_", text).strip("_")[-60:]
