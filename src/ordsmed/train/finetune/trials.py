"""Trials of fine-tuning: over settings, seeds and checkpoints of a pretraining; compared by the task's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ordsmed.base import run
from ordsmed.base.errors import OrdsmedError, RecipeError
from ordsmed.base.say import say
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.plan import Plan
from ordsmed.train.training import Training, named
from ordsmed.train.trials import Trials
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import open_model

READ = ("init", "step", "fresh", "fresh_head", "model", "tokenizer", "task")  # settings that decide model and data


class FinetuningTrials(Trials):
    recipe: Finetuning
    plans = FinetuningPlan

    @classmethod
    def more_axes(cls, recipe: Training, name: str) -> dict[str, Sequence[Any]]:
        assert isinstance(recipe, Finetuning)
        if recipe.step != "all":
            return {}
        with named(name, Finetuning):
            return {"step": _steps(recipe.init)}

    @property
    def score(self) -> str:
        """The name of the score; it may depend on labels, which only a finished trial has recorded."""
        done = next((trial for trial in self.runs if trial.done), None)
        return (run.read_recipe(Finetuning, done.folder) if done else self.recipe).score

    def plan_key(self, recipe: Training) -> str:
        return repr([getattr(recipe, key) for key in READ])

    def check_plan(self, plan: Plan, recipe: Training) -> None:
        assert isinstance(plan, FinetuningPlan)
        assert isinstance(recipe, Finetuning)
        plan.check(recipe)


def _steps(init: str | None) -> list[int]:
    """Return the checkpoint steps of a run; 0 is included if its initial weights can be made again."""
    origin = Origin.of(init, key="init") if init is not None else None
    if origin is None or not origin.is_run:
        raise RecipeError("step", f"found all, but {init} is not a run", "a run's folder as `init`")
    steps = origin.steps()
    try:
        if 0 in steps:
            open_model(origin, 0)
    except OrdsmedError as error:
        say(f"step 0 is left out: {error}")
        steps.remove(0)
    return steps
