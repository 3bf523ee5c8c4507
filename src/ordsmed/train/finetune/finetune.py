"""The verb `finetune`: train a pretrained network for a task; keep its best checkpoint, predictions and scores.

init -> network, tokenizer, weights; the task's files -> examples -> loop -> best validation -> weights/, predictions/
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import FolderKind, kind_of_folder
from ordsmed.base.screen import command
from ordsmed.train import trials
from ordsmed.train.finetune.trials import FinetuningTrials
from ordsmed.train.request import SessionOptions
from ordsmed.train.training import Training


def finetune(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **options: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `part`, for trials: 2/8 is the second eighth of them.
    """
    _check(name)
    return trials.train(FinetuningTrials, name, overrides, part, **options)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **options: Unpack[SessionOptions],
) -> tuple[Training, list[str]]:
    """Return the recipe that `finetune` would train by and its plan as lines; raise its errors, and make nothing."""
    _check(name)
    return trials.rehearse(FinetuningTrials, name, overrides, part, devices, **options)


def _check(name: str) -> None:
    kind = kind_of_folder(name)
    if kind is FolderKind.MAKE or (kind.model and kind not in (FolderKind.FINETUNING, FolderKind.TRIALS)):
        problem = f"is the folder of a `{kind.value}`" if kind.run else "is a model"
        remedy = f"`{command('finetune', 'TASK', f'init={name}')}` trains it for a task"
        raise RecipeError(name, problem, "that of a `finetune`, or the recipe of a task", remedy)
