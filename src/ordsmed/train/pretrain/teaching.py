"""Distillation: open the teacher that an objective names, check that it fits, and report its cost."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from typing import Any

from ordsmed.base.errors import RecipeError
from ordsmed.base.folder import read_status
from ordsmed.base.menu import kind_of
from ordsmed.base.say import many, operations
from ordsmed.learn.objective import Objective, OneTerm
from ordsmed.learn.phases import Phase
from ordsmed.nn.model import own_tensors
from ordsmed.text.tokenizer import Tokenizer
from ordsmed.train.training import Training
from ordsmed.weights import weights
from ordsmed.weights.origin import Origin
from ordsmed.weights.trained_model import Trained, open_model

PLACE = "objective.teacher.run"


def teacher_of(recipe: Training, tokenizer: Tokenizer, *, gone: bool = False) -> Trained | None:
    """Return the teacher of a recipe's objective, or None. `gone`: a missing teacher is not an error."""
    options = getattr(recipe.learned().get("objective"), "teacher", None)
    if options is None or (gone and Origin.find(options.run, key=PLACE) is None):
        return None
    teacher = open_model(Origin.of(options.run, key=PLACE))
    if teacher.tokenizer.fingerprint != tokenizer.fingerprint:
        problem = f"{options.run} was trained with tokenizer {teacher.tokenizer.fingerprint}"
        raise RecipeError(PLACE, problem, tokenizer.fingerprint, "use data encoded with its tokenizer")
    return teacher


def learn_from(objective: Objective, teacher: Trained) -> None:
    assert isinstance(objective, OneTerm)  # only these objectives can name a teacher
    objective.learn_from(teacher.objective, PLACE)


def fingerprint(learned: object) -> list[Any]:
    """Return the digest of the teacher's weights, for the run's stamp; empty without a teacher."""
    options = getattr(learned, "teacher", None)
    return (
        [["teacher", weights.digest(own_tensors(open_model(Origin.of(options.run, key=PLACE)).objective))]]
        if options
        else []
    )


def teaching(teacher: Trained, by_phase: Sequence[Objective], phases: Sequence[Phase]) -> str:
    """Return a line on the teacher's size, the cost of its forward passes and, if known, of its own training."""
    size = many(sum(tensor.numel() for tensor in own_tensors(teacher.objective).values()), "parameter")
    work = sum(
        phase.steps * networks.teaching_flops(phase.batch, phase.length)
        for networks, phase in zip(by_phase, phases, strict=True)
        if isinstance(networks, OneTerm)
    )
    line = f"teacher: {teacher.folder}, {kind_of(teacher.settings)} of {size}; its passes take {operations(work)}"
    costs = read_status(teacher.folder).get("flops", ())
    steps = [int(phase["steps"]) for phase in (teacher.recipe or {}).get("phase", ())]
    if not costs or len(costs) != len(steps):
        return line
    return f"{line}, its own training took {operations(sum(map(mul, costs, steps)))}"
