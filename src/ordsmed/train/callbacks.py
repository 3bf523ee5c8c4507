"""Callbacks: the actions that follow each step of the training loop. A recipe may name more of them.

a step is done -> LoopState -> metrics, callbacks, deadline, validation, saving, stop or end
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ordsmed.base import offers
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import OrdsmedError, RecipeError, RunError
from ordsmed.base.run import Run
from ordsmed.base.say import Progress, say
from ordsmed.learn.objective import Objective
from ordsmed.train import average
from ordsmed.train.job import Job
from ordsmed.train.mesh.parallel import free_memory
from ordsmed.train.meters import Meters
from ordsmed.train.saving import Saving
from ordsmed.train.trouble import stop_or_rewind
from ordsmed.train.watch import Watch


class Replanned(Exception):
    """The loop ends because the deadline changes the numbers of steps after this step."""

    def __init__(self, step: int, plan: list[list[float]]) -> None:
        self.step, self.plan = step, plan
        super().__init__(f"another plan from step {step}")


@dataclass
class LoopState:
    """The state of the loop after a step. Actions run in order; later ones read what earlier ones set."""

    job: Job
    """recipe, networks (`job.objective`), optimizer and processes (`job.ranks`)"""
    folder: Path
    """the run's folder"""
    step: int
    """number of this step in the run, from 1"""
    index: int
    """index of its phase, from 0"""
    began: float
    """time at which the step started, by `time.perf_counter`"""
    last: bool
    """whether this is the last step of the run"""
    signal: int
    """the signal that asks the run to stop; 0: none"""
    ends: bool
    """whether the run is saved and stops after this step"""
    meters: Meters
    progress: Progress
    watch: Watch
    saving: Saving | None
    plan: list[list[float]] | None = None
    """steps and warm-up of every phase from now on, if a deadline changed them"""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The last line of metrics.jsonl (a line comes every `log` steps); `mean`: the loss since the line before."""
        return self.meters.last

    @property
    def model(self) -> Objective:
        """The networks that learn, with their heads: a `torch.nn.Module`."""
        return self.job.objective


class Callback:
    """Base class of callbacks: override any of its methods. Each process that uses a callback creates an instance."""

    every_rank: bool = False
    """whether every process calls it; false: only the first process"""
    source: str = ""
    """the name of the callback in a recipe; empty: not from a recipe"""

    def begin(self, job: Job, folder: Path, start: int) -> None:
        """Called when the loop starts after step `start`: on start, resume, rewind or a change of plan."""

    def after_step(self, state: LoopState) -> None:
        """Called after each step, once the weights are updated."""

    def metrics(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Called when lines are added to metrics.jsonl, for training steps or for a validation."""

    def end(self) -> None:
        """Called when the loop ends for any reason; close what `begin` opened."""

    def finished(self, folder: Path) -> None:
        """Called on the first process when the run or its trials are done and `folder` has weights and scores."""


HOOKS = ("begin", "after_step", "metrics", "end", "finished")


class AfterStep(Callback):
    def __init__(self, function: Callable[[LoopState], object], *, every_rank: bool = False) -> None:
        self.function, self.every_rank = function, every_rank

    def after_step(self, state: LoopState) -> None:
        self.function(state)


def call(callbacks: Iterable[Callback], hook: str, *args: object) -> None:
    """Call `hook` of each callback. Convert errors of callbacks named by a recipe to a one-line `RunError`."""
    for callback in callbacks:
        try:
            getattr(callback, hook)(*args)
        except Exception as error:
            if not callback.source or isinstance(error, OrdsmedError):
                raise
            remedy = "correct it, or resume the run with `callbacks=[]`"
            problem = f"{hook}: {offers.error_line(error)}"
            raise RunError(f"callbacks: {callback.source}", problem, "", remedy) from error


# --- callbacks of a recipe


def load(names: Sequence[str]) -> list[Callback]:
    """Load the callbacks that a recipe names, such as `my_lab.histogram` or `my_lab.histogram:Weights`."""
    callbacks = []
    for name in names:
        module, _, member = name.partition(":")
        target = _member(offers.import_module(module, "callbacks"), member, name)
        callback = _create(target, name) if isinstance(target, type) else AfterStep(target)
        callback.source = name
        if inspect.isfunction(target):
            _check_call(target, "after_step", name)
        for hook in HOOKS:
            _check_call(getattr(callback, hook), hook, name)
        callbacks.append(callback)
    return callbacks


def _member(module: ModuleType, member: str, name: str) -> type[Callback] | Callable[[LoopState], object]:
    wanted = "a class that derives from `ordsmed.train.callbacks.Callback`, or a function `after_step(state)`"
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Callback) and value.__module__ == module.__name__
    ]
    if not member and len(classes) > 1:
        problem = f"`{name}` has {' and '.join(value.__name__ for value in classes)}"
        raise RecipeError("callbacks", problem, "one", f'name it: "{name}:{classes[0].__name__}"')
    target = getattr(module, member, None) if member else [*classes, getattr(module, "after_step", None)][0]
    if not callable(target) or (inspect.isclass(target) and not issubclass(target, Callback)):
        problem = f"`{name}` is not a callback" if target is not None else f"`{name}` has no {member or 'callback'}"
        raise RecipeError("callbacks", problem, wanted, offers.page("callbacks"))
    callback: type[Callback] | Callable[[LoopState], object] = target
    return callback


def _create(target: type[Callback], name: str) -> Callback:
    try:
        return target()
    except Exception as error:  # a user's class may raise anything
        problem = f"`{name}`: {target.__name__}() fails: {offers.error_line(error)}"
        raise RecipeError("callbacks", problem, "a class without arguments", offers.page("callbacks")) from None


def _check_call(function: Callable[..., object], hook: str, name: str) -> None:
    args = [word for word in inspect.signature(getattr(Callback, hook)).parameters if word != "self"]
    try:
        inspect.signature(function).bind(*args)
    except TypeError as error:
        form = f"`{hook}({', '.join(args)})`"
        raise RecipeError(
            "callbacks", f"`{name}`: {hook} cannot be called ({error})", form, offers.page("callbacks")
        ) from None


# --- callbacks of the loop


def write_metrics(state: LoopState) -> None:
    """Write metrics and print one line, every `log` steps."""
    step = state.step
    if not (step % state.job.recipe.log == 0 or state.last or state.ends):
        return
    if line := state.meters.flush(state.job.objective.weights, final=state.last or state.ends):
        speed = line["tokens_per_second"]
        numbers = (
            f"loss {line['mean']:.4f}",
            f"{speed / 1e3:,.0f}k tokens/s" if speed >= 1e6 else f"{speed:,.0f} tokens/s",
        )
        notes = f"rate {line['learning_rate']:.2e}", f"{line['share_of_peak']:.0%} of peak"
        state.progress.add(step - state.progress.done, *numbers, notes=notes)


def apply_deadline(state: LoopState) -> None:
    deadline = None if state.last else state.job.state.deadline
    if deadline:
        state.plan = deadline.replan(state.job, state.step, time.perf_counter() - state.began)


def validate(state: LoopState) -> None:
    """Validate if the recipe says so, and stop early if `patience` is used up."""
    job, step = state.job, state.step
    if not (job.recipe.validates(step) or state.last):
        return
    state.watch.at(step, "judging")
    state.meters.flush(job.objective.weights)
    if reason := run_validation(job, state.index, state.meters, step):
        stop_or_rewind(job, state.folder, step, reason)
    if not state.last and job.is_enough:
        say(f"step {step}: stops early (`patience`): no validation was better than the best one")
        state.last = True


def validate_beginning(job: Job, folder: Path, meters: Meters) -> None:
    """Validate weights that were trained before, as a baseline for later validations."""
    if not job.starts_trained or job.state.validations:  # a run that is restarted or resumed has it already
        return
    job.carry(0)
    run_validation(job, 0, meters, 0)
    if job.ranks.first and job.state.validations:
        Run(folder).set(validation_before=job.state.validations[0]["validation"])


def run_validation(job: Job, index: int, meters: Meters, step: int) -> str:
    """Validate, print and record the scores; return why they are not usable, or an empty string."""
    scores = job.data.validate(job, index)
    if scores:
        line = {"step": step, "phase": index + 1, **scores, **_average_scores(job, index)}
        job.state.validations.append(line)
        meters.write_validation(line)
        text = f"{f'step {step}' if step else 'before the first step'}: {job.data.describe(job, scores)}"
        say(f"{text}; average of weights {line['validation_average']:.4f}" if "validation_average" in line else text)
        if not math.isfinite(scores["validation"]):
            return f"validation loss {scores['validation']:g}"
    return ""


def _average_scores(job: Job, index: int) -> dict[str, float]:
    if not (job.recipe.average and job.recipe.validates_average) or not any(
        average.KEY in state for state in job.optimizer.state.values()
    ):
        return {}
    free_memory(job.objective)
    with average.averaged_weights(job.optimizer, job.parts):
        scores = job.data.validate(job, index)
        free_memory(job.objective)
    return {"validation_average": scores["validation"]}


def save(state: LoopState) -> None:
    """Save a checkpoint if the recipe says so, if the validation is the best so far, or if the run ends.

    Weights that are not finite are never saved: such a checkpoint would replace one that can be resumed.
    """
    job, step, final = state.job, state.step, state.last or state.ends
    wanted = (
        final or job.recipe.is_saved(step) or job.state.reached or step == job.recipe.best_of(job.state.validations)
    )
    if not state.saving or not wanted:
        return
    state.watch.at(step, "saving")
    state.meters.flush(job.objective.weights, final=final)
    if not job.finite:
        stop_or_rewind(job, state.folder, step, "weights with NaN or Inf")
    state.saving.save(step, final=final)


def stop_or_replan(state: LoopState) -> None:
    """Raise `Stopped` if the run was asked to stop, or `Replanned` if the deadline changed the plan."""
    if state.last:
        return
    if state.ends:
        raise Stopped(state.step, state.signal)
    if state.plan:
        state.meters.flush(state.job.objective.weights)
        raise Replanned(state.step, state.plan)


def step_actions(callbacks: Sequence[Callback]) -> tuple[Callable[[LoopState], None], ...]:
    more = [lambda state: call(callbacks, "after_step", state)] if callbacks else []
    return (write_metrics, *more, apply_deadline, validate, save, stop_or_replan)
