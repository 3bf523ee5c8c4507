"""Extend a pretraining that has checkpoints: longer phases for an unfinished run, another phase for a finished one.

An unfinished run follows the schedule of the longer plan from its checkpoint on. A finished run gets a phase whose rate
rises to the value that a run of all steps together would have, and then follows the schedule of the phase before.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordsmed.base import files, run, settings
from ordsmed.base.errors import DataError
from ordsmed.base.folder import RECIPE
from ordsmed.base.run import Run
from ordsmed.base.say import duration, many
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.learn.schedules import Schedule, factor, warmup_steps
from ordsmed.train import checkpoint
from ordsmed.train.deadline import RESERVE, plan_at, scaled_warmup, table
from ordsmed.train.fitting import TooShort, with_affordable_validations
from ordsmed.train.meters import read
from ordsmed.train.pretrain.recipe import Pretraining

MEASURED = 50  # last steps of a run, whose speed predicts that of the next steps
ABOVE = 1.5  # a plan may grow to this many times its steps if steps are faster
REWARMING = 0.03  # share of an added phase in which its rate rises
LEAST_STEPS = 10  # least steps of an extension


@dataclass(frozen=True)
class Extension:
    """A longer plan for a run."""

    folder: Path
    before: Pretraining
    after: Pretraining
    step: int  # of the checkpoint that training continues from
    finished: bool  # the run is done: a phase is added
    rates: tuple[float, float]  # of the next step by the old plan; highest rate of the new plan
    facts: dict[str, Any]  # for the run's status

    @property
    def steps(self) -> int:
        return total(self.after.phase) - self.step

    def lines(self) -> list[str]:
        (old, new), last = self.rates, self.after.phase[-1]
        before, after = (many(total(recipe.phase), "step") for recipe in (self.before, self.after))
        if self.finished:
            rise = many(max(1, round(last.warmup * last.steps)), "step")
            more, kind = many(last.steps, "step"), last.schedule.kind
            return [
                f"one more phase of {more}: its rate rises in {rise} to {new:.2e}, then {kind} as before",
                f"({new:.2e} is the learning rate of a plan of {after} at step {self.step:,})",
            ]
        return [
            f"the {last.schedule.kind} schedule of {before} is stretched to {after}: "
            f"{new:.2e} at step {self.step + 1:,}, instead of {old:.2e}"
        ]

    def write(self) -> None:
        """Write the plan to the run's folder. If the process is killed in between, the run can be extended again."""
        run_folder = Run(self.folder)
        run_folder.set(state="stopped", **self.facts)
        files.write_text(self.folder / RECIPE, settings.write(self.after))


def extend(folder: Path, seconds: float) -> Extension:
    """Plan `seconds` more of training for the run in `folder`; nothing is written."""
    status, last = Run(folder).status, checkpoint.latest(folder / "checkpoints", place=folder)
    assert last is not None, "a run without checkpoints begins again"
    step = int(last[1]["step"])
    recipe = plan_at(run.read_recipe(Pretraining, folder), status.get("plans", []), step)
    ends = list(status.get("ends", []))
    if ends and ends[-1] == step == total(recipe.phase[:-1]):  # an earlier extension of which nothing was trained
        recipe, ends = recipe.with_phases(recipe.phase[:-1]), ends[:-1]
    finished = status.get("state") == "done" or step >= total(recipe.phase)
    if finished:
        recipe = recipe.with_phases(_phases_until(recipe.phase, step))
    learned = [line for line in read(folder / "metrics.jsonl") if "seconds" in line and line["step"] <= step]
    pace, fit = _seconds_of_a_step(recipe, learned), status.get("fit", {})
    judging = float(fit.get("judging", 0.0))
    left = seconds * RESERVE - float(fit.get("ending") or judging)
    recipe = with_affordable_validations(recipe, left, judging)
    every, fixed = recipe.validation_cost(judging)
    left -= fixed
    count = int(left / (pace + every))
    if count < LEAST_STEPS:
        problem = f"{duration(seconds)} are left for training, too little for {LEAST_STEPS} steps"
        error = TooShort("--deadline", problem, "more")
        error.seconds = seconds + (LEAST_STEPS * pace - left) / RESERVE + 1.0
        raise error
    if finished:
        phases, wanted = _add_phase(recipe.phase, len(ends), count)
        ends, plans = [*ends, step], []
        rates = recipe.phase[-1].rate_at(recipe.phase[-1].steps - 1), phases[-1].learning_rate
    else:
        phases, wanted = _stretch(recipe.phase, step, count)
        change = {"after": step, "was": table(recipe.phase), "now": table(phases)}
        plans = [*(plan for plan in status.get("plans", []) if plan["after"] < step), change]
        index, inner = locate(recipe.phase, step)
        rates = recipe.phase[index].rate_at(inner), phases[index].rate_at(inner)
    facts = {
        "deadline": sum(line["seconds"] for line in learned) + seconds,
        "fit": {"ending": judging, **fit, "asked": wanted, "learning": [pace] * len(phases), "judging": judging},
        "plans": plans,
        "ends": ends,
        "steps_asked": [int(row[0]) for row in wanted],
    }
    return Extension(folder, recipe, recipe.with_phases(phases), step, finished, rates, facts)


def _seconds_of_a_step(recipe: Pretraining, learned: list[dict[str, Any]]) -> float:
    if not learned:
        raise DataError("metrics.jsonl", "has no training steps", "the metrics that the run wrote", "restore the file")
    last = learned[-MEASURED:]
    batches = [recipe.phase[line["phase"] - 1].batch / line["rows"] for line in last]
    return float(statistics.median(line["seconds"] * whole for line, whole in zip(last, batches, strict=True)))


def _phases_until(phases: tuple[Phase, ...], step: int) -> tuple[Phase, ...]:
    """Return the phases of a run that ended at `step`, possibly within a phase."""
    index, inner = locate(phases, step)
    if not inner:
        return phases[:index]
    cut = phases[index]
    schedule = dataclasses.replace(cut.schedule, over=cut.schedule.span(cut.steps))
    warmup = float(warmup_steps(cut.warmup, schedule.over))
    return (*phases[:index], dataclasses.replace(cut.with_fixed_ramp(), steps=inner, warmup=warmup, schedule=schedule))


def _add_phase(phases: tuple[Phase, ...], added: int, steps: int) -> tuple[tuple[Phase, ...], list[list[float]]]:
    """Return the phases with one more, and their planned steps; `added` phases come from earlier extensions."""
    first = len(phases) - 1 - added  # the phase that is extended; its peak rate is that of all its extensions
    usual, done = phases[first], total(phases[first:])
    schedule = dataclasses.replace(usual.schedule, over=0)
    peak = usual.learning_rate * _rate_share(schedule, done, done + steps, usual)
    more = dataclasses.replace(
        phases[-1], steps=steps, learning_rate=peak, warmup=REWARMING, schedule=schedule, batch_ramp=None, rewarm=False
    )
    longer = (*phases, more)
    return longer, [*table(phases), [float(math.ceil(ABOVE * steps)), REWARMING]]


def _rate_share(schedule: Schedule, step: int, steps: int, phase: Phase) -> float:
    """Return the learning rate at a step of a longer phase, as a share of its peak."""
    return factor(schedule, step, steps, float(warmup_steps(phase.warmup, phase.schedule.span(phase.steps))))


def _stretch(phases: tuple[Phase, ...], step: int, count: int) -> tuple[tuple[Phase, ...], list[list[float]]]:
    index, inner = locate(phases, step)
    share = (inner + count) / total(phases[index:])
    longer, wanted = list(phases), table(phases)
    for number in range(index, len(phases)):
        longer[number] = _scale(phases[number], share, inner + 1 if number == index else 1)
        wanted[number] = table([_scale(longer[number], ABOVE, 1)])[0]
    return tuple(longer), wanted


def _scale(phase: Phase, share: float, least: int) -> Phase:
    steps = max(least, round(phase.steps * share))
    schedule = dataclasses.replace(phase.schedule, over=math.ceil(phase.schedule.over * share))
    warmup = scaled_warmup(phase.warmup, share)
    return dataclasses.replace(phase.with_fixed_ramp(), steps=steps, warmup=warmup, schedule=schedule)
