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
from ordsmed.train.session import SessionOptions
from ordsmed.train.trials import check_part, meant, put_away


def finetune(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **how: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `how` has the options of session.run_session. `part`, for trials: 2/8 is the second eighth of them.
    """
    _check(name, how, part)
    with at_home(name) as place:
        group, share = meant(FinetuningTrials, place, overrides, part, **how)
        if group:
            return group.perform(how.get("callbacks", ()), anew=bool(how.get("anew")), part=share)
        if put_away(place, **how):
            return Path(place)
        return session.run_session(FinetuningPlan, place, overrides, **how)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **how: Unpack[SessionOptions],
) -> tuple[Finetuning, list[str]]:
    """Return the recipe that `finetune` would train by and its plan as lines; raise its errors, and make nothing."""
    _check(name, how, part)
    with nothing_made(), at_home(name) as place:
        if group := meant(FinetuningTrials, place, overrides, part, devices, **how)[0]:
            return group.recipe, group.rehearse(anew=bool(how.get("anew")))
        if put_away(place, **how):
            return read_recipe(Finetuning, Path(place)), []
        plan = session.rehearse(FinetuningPlan, place, overrides, devices=devices, **how)
        return plan.recipe, plan.lines()


def _check(name: str, how: SessionOptions, part: str | None) -> None:
    kind = kind_of_folder(name)
    if kind is FolderKind.MAKE or (kind.model and kind not in (FolderKind.FINETUNING, FolderKind.TRIALS)):
        problem = f"is the folder of a `{kind.value}`" if kind.run else "is a model"
        remedy = f"`{command('finetune', 'TASK', f'init={name}')}` teaches it a task"
        raise RecipeError(name, problem, "that of a `finetune`, or the recipe of a task", remedy)
    check_part(part, **how)
    how["site"] = absolute(how.get("site", ""))
