"""The verb `finetune`: a pretrained network learns a task; its best checkpoint, predictions and scores are left.

init -> network, tokenizer, weights; the task's files -> examples -> loop -> the best check -> weights/, predictions/
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.base import run
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import at_home
from ordsmed.base.say import say
from ordsmed.finetune import trials
from ordsmed.finetune.plan import FinetuningPlan, no_deadline
from ordsmed.launch.site import absolute
from ordsmed.train.session import SessionOptions, perform


def finetune(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **how: Unpack[SessionOptions]
) -> Path:
    """Start the run or the trials that a recipe describes, or go on; every process of a launch calls this.

    `how` as in session.perform; `part`, of trials: 2/8, the second eighth of them.
    """
    if part and how.get("anew"):
        raise RecipeError("--anew", "beside --part", "one of them", "`--anew` alone begins again")
    if how.get("deadline"):
        raise no_deadline()  # before anything is deleted to begin anew
    how["site"] = absolute(how.get("site", ""))
    with at_home(name) as own:
        return _finetuned(own, overrides, how, part)


def _finetuned(name: str, overrides: Sequence[str], how: SessionOptions, part: str | None) -> Path:
    several = trials.asked(name, overrides, **how)
    if part:
        share = run.part(part)
        if not several:
            raise RecipeError("--part", f"found {part}, of one run", "a recipe with `seeds` or a `grid`")
        return trials.perform_part(*several, name, share)
    if several:
        return trials.perform(*several, name, anew=bool(how.get("anew")))
    if not how.get("anew") and trials.is_put_away(Path(name)):
        say(f"{name}: all is done; its weights stand")
        return Path(name)
    return perform(FinetuningPlan, name, overrides, **how)
