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
from ordsmed.train.request import SessionOptions
from ordsmed.train.training import Training
from ordsmed.train.trials import check_part, meant, put_away


def pretrain(
    name: str, overrides: Sequence[str] = (), *, part: str | None = None, **options: Unpack[SessionOptions]
) -> Path:
    """Start or resume the run or the trials that a recipe describes; every process of a launch calls this.

    `options` has the options of session.run_session. `part`, for trials: 2/8 is the second eighth of them.
    """
    check_part(part, **options)
    options["site"] = absolute(options.get("site", ""))
    with at_home(name) as location:
        group, share = meant(PretrainingTrials, location, overrides, part, **options)
        if group:
            return group.perform(options.get("callbacks", ()), anew=bool(options.get("anew")), part=share)
        if put_away(location, **options):
            return Path(location)
        return session.run_session(PretrainingPlan, location, overrides, **options)


def rehearse(
    name: str,
    overrides: Sequence[str] = (),
    *,
    part: str | None = None,
    devices: int = 0,
    **options: Unpack[SessionOptions],
) -> tuple[Training, list[str]]:
    """Return the recipe that `pretrain` would train by and its plan as lines; raise its errors, and make nothing."""
    check_part(part, **options)
    options["site"] = absolute(options.get("site", ""))
    with nothing_made(), at_home(name) as location:
        if group := meant(PretrainingTrials, location, overrides, part, devices, **options)[0]:
            return group.recipe, group.rehearse(anew=bool(options.get("anew")))
        if put_away(location, **options):
            return read_recipe(Pretraining, Path(location)), []
        plan = session.rehearse(PretrainingPlan, location, overrides, devices=devices, **options)
        return plan.recipe, plan.lines()
