"""`ordsmed.pretrain`: the verb of this name as a function, which the verb calls as well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from ordsmed.base.errors import RecipeError
from ordsmed.base.files import in_a_line
from ordsmed.base.say import seconds
from ordsmed.pretrain import pretrain as session
from ordsmed.pretrain.plan import PretrainingPlan
from ordsmed.train.keywords import words_of
from ordsmed.train.result import TrainingRun


@in_a_line()
def pretrain(
    recipe: str | Path, *, overrides: Sequence[str] = (), deadline: str | float | None = None, anew: bool = False,
    layout: str | Mapping[str, object] = "", site: str = "", **settings: object,
) -> TrainingRun:  # fmt: skip
    """Train a network: a new run from a recipe (a built-in one by name, or a TOML file), or go on with a run's folder.

    Keywords change settings of the recipe; tables are dicts or dotted keys; `overrides` are the command line's words.
    `steps` is how many all phases have together, warm-ups in proportion; `deadline`: "3h" or seconds; `anew`: delete
    what stands in the folder. Ctrl-C saves the run and raises Stopped; the same call goes on.

        run = ordsmed.pretrain("tiny/bert", steps=100, out="work/short", **{"phase.rate": 1e-3})
        run.scores["validation"], run.open().fill("it is [MASK].")
    """
    if not isinstance(layout, str):  # of the recipe, not a mesh
        layout, settings["layout"] = "", layout
    words = words_of(PretrainingPlan.recipes, str(recipe), overrides, settings)
    how = {"deadline": _until(deadline), "anew": anew, "layout": layout, "site": site}
    return TrainingRun(session.pretrain(str(recipe), words, **how))


def _until(deadline: str | float | None) -> float | None:
    """In seconds."""
    try:
        left = seconds(deadline) if isinstance(deadline, str) else deadline
    except ValueError:
        left = 0.0
    if left is not None and not (left > 0 and math.isfinite(left)):
        raise RecipeError("deadline", f"found {deadline!r}", "seconds above 0, or a text as 3h, 90m or 1h30m")
    return left
