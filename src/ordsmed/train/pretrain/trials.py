"""Trials of pretraining over settings and seeds, compared by the validation loss."""

from __future__ import annotations

from ordsmed.base import run
from ordsmed.train.pretrain.plan import PretrainingPlan
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.trials import Trials


class PretrainingTrials(Trials):
    recipe: Pretraining
    plans = PretrainingPlan
    lower_is_better = True
    score = "validation"

    def prepare(self, *, anew: bool) -> None:
        """Make the data once and raise the errors of a run, before any trial starts."""
        self.recipe.stamp()
        with run.without_making():
            self.rehearse(anew=anew)
