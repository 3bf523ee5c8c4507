"""The verb `finetune`: train a pretrained network for a task; keep its best checkpoint, predictions and scores.

init -> network, tokenizer, weights; the task's files -> examples -> loop -> best validation -> weights/, predictions/
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.launch.site import absolute
from ordsmed.base.run import at_home, nothing_made, read_recipe
from ordsmed.base.screen import command
from ordsmed.train import session
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.finetune.trials import FinetuningTrials
from ordsmed.train.request import SessionOptions
from ordsmed.train.trials import check_part, meant, put_away


def finetune(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **options: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `options` has the options of session.run_session. `part`, for trials: 2/8 is the second eighth of them.
    """
    _check(name, options, part)
    with at_home(name) as location:
        group, share = meant(FinetuningTrials, location, overrides, part, **options)
        if group:
            return group.perform(options.get("callbacks", ()), anew=bool(options.get("anew")), part=share)
        if put_away(location, **options):
            return Path(location)
        return session.run_session(FinetuningPlan, location, overrides, **options)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **options: Unpack[SessionOptions],
) -> tuple[Finetuning, list[str]]:
    """Return the recipe that `finetune` would train by and its plan as lines; raise its errors, and make nothing."""
    _check(name, options, part)
    with nothing_made(), at_home(name) as location:
        if group := meant(FinetuningTrials, location, overrides, part, devices, **options)[0]:
            return group.recipe, group.rehearse(anew=bool(options.get("anew")))
        if put_away(location, **options):
            return read_recipe(Finetuning, Path(location)), []
        plan = session.rehearse(FinetuningPlan, location, overrides, devices=devices, **options)
        return plan.recipe, plan.lines()


def _check(name: str, options: SessionOptions, part: str | None) -> None:
    kind = kind_of_folder(name)
    if kind is FolderKind.MAKE or (kind.model and kind not in (FolderKind.FINETUNING, FolderKind.TRIALS)):
        problem = f"is the folder of a `{kind.value}`" if kind.run else "is a model"
        remedy = f"`{command('finetune', 'TASK', f'init={name}')}` trains it for a task"
        raise RecipeError(name, problem, "that of a `finetune`, or the recipe of a task", remedy)
    check_part(part, **options)
    options["site"] = absolute(options.get("site", ""))
