"""The verb `pretrain`: train a network on encoded text, or several of one recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ordsmed.base.launch.site import absolute
from ordsmed.base.run import at_home, nothing_made, read_recipe
from ordsmed.train import session
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.pretrain.trials import PretrainingTrials
from ordsmed.train.session import SessionOptions
from ordsmed.train.training import Training
from ordsmed.train.trials import check_part, meant, put_away


def pretrain(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **how: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `how` has the options of session.run_session. `part`, for trials: 2/8 is the second eighth of them.
    """
    check_part(part, **how)
    how["site"] = absolute(how.get("site", ""))
    with at_home(name) as place:
        group, share = meant(PretrainingTrials, place, overrides, part, **how)
        if group:
            return group.perform(how.get("callbacks", ()), anew=bool(how.get("anew")), part=share)
        if put_away(place, **how):
            return Path(place)
        return session.run_session(PretrainingPlan, place, overrides, **how)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **how: Unpack[SessionOptions],
) -> tuple[Training, list[str]]:
    """Return the recipe that `pretrain` would train by and its plan as lines; raise its errors, and make nothing."""
    check_part(part, **how)
    how["site"] = absolute(how.get("site", ""))
    with nothing_made(), at_home(name) as place:
        if group := meant(PretrainingTrials, place, overrides, part, devices, **how)[0]:
            return group.recipe, group.rehearse(anew=bool(how.get("anew")))
        if put_away(place, **how):
            return read_recipe(Pretraining, Path(place)), []
        plan = session.rehearse(PretrainingPlan, place, overrides, devices=devices, **how)
        return plan.recipe, plan.lines()
