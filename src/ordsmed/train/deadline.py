"""A deadline: steps are fitted when a run begins, and again while it goes, by the speed that its steps really have.

Every change of plan stands in the run's status, with the step after which it holds: who goes on follows the same plans.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ordsmed.base import files, settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks, first_alone
from ordsmed.base.run import Run
from ordsmed.base.say import duration, say
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.train import loop
from ordsmed.train.job import Job, build
from ordsmed.train.material import VALIDATION_ROWS, TextData, validate
from ordsmed.train.recipe import Pretraining

Table = list[list[float]]  # steps and warm-up of every phase

RESERVE = 0.95  # of a deadline is planned; the rest is for the checkpoint at the end and a slower hour
TRIAL_STEPS = 3
FIRST = 4  # the step after which a plan is first looked at again
PARTS = 8  # of a plan, after each of which it is looked at again
SLACK = 0.1  # of the steps that are left: a change of fewer is none
SANE = 0.1  # of the steps asked for: with fewer the rates of the recipe may mean little


def fit(recipe: Pretraining, ranks: Ranks, seconds: float) -> tuple[Pretraining, dict[str, Any]]:
    """Fewer steps, never more, so that all phases end in time; each phase and its warm-up shrink by the same share.

    Beside the recipe: what the run's status keeps, for the plan to be made again by it.
    """
    job = build(recipe, ranks)
    start = time.perf_counter()
    trials = [_trial(job, index) for index in range(len(recipe.phase))]
    judging = _validation_seconds(job)
    numbers = [*(number for trial in trials for number in trial), judging, time.perf_counter() - start]
    *flat, judging, spent = (ranks.total(torch.tensor(numbers).double()) / ranks.data_world).tolist()
    each, fastest, slowest = flat[::3], flat[1::3], flat[2::3]
    every = judging / recipe.validate if recipe.validate else 0.0
    needed = sum(p.steps * (e + every) for p, e in zip(recipe.phase, each, strict=True))
    facts = {"asked": table(recipe.phase), "learning": each, "judging": judging}
    left = (seconds - spent) * RESERVE - judging
    if needed <= left:
        return recipe, facts
    share = left / needed
    if share <= 0 or any(phase.steps * share < 1 for phase in recipe.phase):
        found = f"{duration(seconds)} is less than a step of every phase takes"
        raise RecipeError("--deadline", found, f"more than {duration(needed / min(p.steps for p in recipe.phase))}")
    fitted = dataclasses.replace(recipe, phase=tuple(_shrunk(phase, share) for phase in recipe.phase))
    steps = [[phase.steps for phase in which.phase] for which in (recipe, fitted)]
    say(f"deadline {duration(seconds)}: steps {steps[0]} became {steps[1]}; a step took {min(fastest):.3g} to "
        f"{max(slowest):.3g} s, and the plan is made again as the run goes")  # fmt: skip
    _warn(total(fitted.phase), total(recipe.phase))
    return fitted, facts


def _warn(steps: int, asked: int) -> None:
    if steps < SANE * asked:
        say(f"--deadline: {steps / asked:.2%} of the recipe's steps; its rate and warm-up were made for all of them")


@dataclass
class Deadline:
    """The plans of a run that has to end in time."""

    folder: Path
    seconds: float  # from its first start, or of training where it was interrupted
    asked: Table
    learning: list[float]  # seconds of a step of each phase, as they were tried
    judging: float  # of a validation, and of the one at the end
    used: float  # seconds before this process trained
    every: int = 0  # steps between validations
    plans: list[dict[str, Any]] = field(default_factory=list)  # after which step which plan became which
    began: float = field(default_factory=time.perf_counter)
    spent: list[float] = field(default_factory=list)  # seconds of the steps since the plan was looked at

    @staticmethod
    def of(folder: Path, recipe: Any, start: int, used: float) -> Deadline | None:
        """That of a run; None: it has none."""
        status = Run(folder).status
        if "fit" not in status:
            return None
        return Deadline(folder, status["deadline"], used=used if start else time.time() - status["began"],
                        every=recipe.validate, plans=list(status.get("plans", [])), **status["fit"])  # fmt: skip

    def replan(self, job: Job, step: int, seconds: float) -> Table | None:
        """After a step that took so long: the plan from now on, where it is another one; equal on all ranks."""
        self.spent.append(seconds)
        if self.plans and step <= self.plans[-1]["after"]:  # what was decided once holds for who goes on
            return next((plan["now"] for plan in self.plans if plan["after"] == step), None)
        steps = total(job.phases)
        if step < FIRST or (step & (step - 1) and step % max(1, steps // PARTS)) or len(self.spent) < 3:
            return None
        run_ahead = job.ranks.device.type == "cuda"  # of a GPU, which is asked now and then: only the mean is true
        each, self.spent = (statistics.fmean if run_ahead else statistics.median)(self.spent[1:]), []
        found: Table | None = first_alone(job.ranks, lambda: self._plan(job, step, each))
        if found:
            self.plans.append({"after": step, "was": table(job.phases), "now": found})
        return found

    def _plan(self, job: Job, step: int, each: float) -> Table | None:
        """For the first rank: decide, and write it down before another step is learned."""
        index, inner = locate(job.phases, step)
        if not inner:
            return None  # between phases
        slower = each / self.learning[index]
        judging = self.judging * slower
        costs = [slower * own + (judging / self.every if self.every else 0.0) for own in self.learning]
        left = (self.seconds - self.used - (time.perf_counter() - self.began)) * RESERVE - judging
        now, share = table(job.phases), self._share(left + inner * costs[index], costs, index)
        if self.asked[index][0] * share < inner + 1:  # one more step of this phase, and what then is left
            share = self._share(left - costs[index], costs, index + 1)
        for number in range(index, len(now)):
            asked, warmup = self.asked[number]
            steps = max(inner + 1 if number == index else 1, int(asked * share))
            now[number] = [steps, warmup if warmup < 1 else min(float(int(warmup * steps / asked)), steps)]
        planned_now, before = int(sum(row[0] for row in now)), total(job.phases)
        if abs(planned_now - before) <= SLACK * (before - step):
            return None
        plan = {"after": step, "was": table(job.phases), "now": now}
        Run(self.folder).set(plans=[*self.plans, plan])
        say(f"deadline: a step takes {each:.3g} s; {before:,} steps became {planned_now:,}, of which {step:,} are done")
        _warn(planned_now, int(sum(row[0] for row in self.asked)))
        return now

    def _share(self, left: float, costs: list[float], first: int) -> float:
        """Of the steps asked for from a phase on: how large a part fits."""
        whole = 0.0
        for row, cost in zip(self.asked[first:], costs[first:], strict=True):
            whole += row[0] * cost
        return min(1.0, max(0.0, left / whole)) if whole else 0.0


def table(phases: Sequence[Phase]) -> Table:
    """Phases as a plan."""
    return [[phase.steps, phase.warmup] for phase in phases]


def planned(recipe: Any, plan: Table) -> Any:
    """A recipe with a plan's steps."""
    phases = (dataclasses.replace(phase, steps=int(steps), warmup=warmup)
              for phase, (steps, warmup) in zip(recipe.phase, plan, strict=True))  # fmt: skip
    return dataclasses.replace(recipe, phase=tuple(phases))


def in_force(recipe: Any, plans: Sequence[dict[str, Any]], step: int) -> Any:
    """A recipe as it was planned when so many steps were done."""
    plan = next((plan["was"] for plan in plans if step < plan["after"]), plans[-1]["now"] if plans else None)
    return recipe if plan is None else planned(recipe, plan)


def follow(job: Job, folder: Path, plan: Table) -> Job:
    """The job that goes by another plan from now on; its folder says so."""
    assert isinstance(job.material, TextData)
    recipe = planned(job.recipe, plan)
    if job.ranks.first:
        files.write_text(folder / "recipe.toml", settings.write(recipe))
    return dataclasses.replace(job, recipe=recipe, material=dataclasses.replace(job.material, recipe=recipe))


def _shrunk(phase: Phase, share: float) -> Phase:
    steps = max(1, int(phase.steps * share))
    warmup = phase.warmup if phase.warmup < 1 else max(float(int(phase.warmup * share)), 0.0)
    return dataclasses.replace(phase, steps=steps, warmup=min(warmup, steps))


def _trial(job: Job, index: int) -> tuple[float, float, float]:
    """Seconds of a step of this phase: the median, the fastest and the slowest of a few, on networks that are thrown
    away after."""
    rows, share, phase = job.rows(index), job.share(index), job.phases[index]
    job.carry(index)
    ready = loop.load(rows, share, 0, min(TRIAL_STEPS + 1, phase.steps), workers=0, device=job.ranks.device)
    spent = []
    for inner, batches in enumerate(ready):
        began = time.perf_counter()
        float(loop.update(job, batches, 0.0, index, inner)[1])
        spent.append(time.perf_counter() - began)
    told = spent[1:] or spent  # the first wakes much
    return sorted(spent)[len(spent) // 2], min(told), max(told)


def _validation_seconds(job: Job) -> float:
    texts = job.material
    assert isinstance(texts, TextData)
    rows = texts.validation(len(job.phases) - 1)
    if rows is None:
        return 0.0
    count, began = min(texts.recipe.validation_rows, len(rows)), time.perf_counter()
    some = min(count, VALIDATION_ROWS)
    validate(job, rows, some)
    return (time.perf_counter() - began) * count / some
