"""A deadline: steps are planned again while a run goes, by the speed that its steps really have.

Every change of plan stands in the run's status, with the step after which it holds: who goes on follows the same plans.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ordsmed.base.ranks import first_alone
from ordsmed.base.run import Run
from ordsmed.base.say import detail, say
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.train.job import Job
from ordsmed.train.training import Training

R = TypeVar("R", bound=Training)
Table = list[list[float]]  # steps and warm-up of every phase, and its `schedule.over` where that is said

RESERVE = 0.95  # of a deadline is planned; the rest is for the checkpoint at the end and a slower hour
FIRST = 4  # the step after which a plan is first looked at again
PARTS = 8  # of a plan, after each of which it is looked at again
SLACK = 0.1  # of the steps that are left: a change of fewer is none
SANE = 0.1  # of the steps asked for: with fewer the rates of the recipe may mean little


def warn(steps: int, wanted: int) -> None:
    if steps < SANE * wanted:
        say(f"--deadline: {steps / wanted:.2%} of the recipe's steps; its rate and warm-up were made for all of them")


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
    def of(folder: Path, recipe: Training, start: int, used: float) -> Deadline | None:
        """That of a run; None: it has none."""
        status = Run(folder).status
        if "fit" not in status:
            return None
        return Deadline(folder, status["deadline"], used=used if start else time.time() - status["began"],
                        every=recipe.validation_interval,
                        plans=list(status.get("plans", [])), **status["fit"])  # fmt: skip

    def replan(self, job: Job, step: int, seconds: float) -> Table | None:
        """After a step that took so long: the plan from now on, where it is another one; equal on all ranks."""
        self.spent.append(seconds / _share_of_batch(job.phases, step))
        if self.plans and step <= self.plans[-1]["after"]:  # what was decided once holds for who goes on
            return next((plan["now"] for plan in self.plans if plan["after"] == step), None)
        steps = total(job.phases)
        if step < FIRST or (step & (step - 1) and step % max(1, steps // PARTS)) or len(self.spent) < 3:
            return None
        run_ahead = job.ranks.device.type == "cuda"  # of a GPU, which is asked now and then: only the mean is true
        pace, self.spent = (statistics.fmean if run_ahead else statistics.median)(self.spent[1:]), []
        new_plan = first_alone(job.ranks, lambda: self._plan(job, step, pace))
        if new_plan:
            self.plans.append({"after": step, "was": table(job.phases), "now": new_plan})
        return new_plan

    def _plan(self, job: Job, step: int, pace: float) -> Table | None:
        """For the first rank: decide, and write it down before another step is learned."""
        index, inner = locate(job.phases, step)
        if not inner:
            return None  # between phases
        slower = pace / self.learning[index]
        judging = self.judging * slower
        costs = [slower * tried + (judging / self.every if self.every else 0.0) for tried in self.learning]
        left = (self.seconds - self.used - (time.perf_counter() - self.began)) * RESERVE - judging
        tried = zip(self.learning, job.phases, strict=True)  # what batches that grow save, however many steps there are
        saved = [slower * each_step * (phase.steps - phase.whole_steps) for each_step, phase in tried]
        done = inner * costs[index] - slower * self.learning[index] * (inner - _whole_steps(job.phases[index], inner))
        now, share = table(job.phases), self._share(left + done + sum(saved[index:]), costs, index)
        if self.asked[index][0] * share < inner + 1:  # one more step of this phase, and what then is left
            share = self._share(left - costs[index] + sum(saved[index + 1 :]), costs, index + 1)
        for number in range(index, len(now)):
            wanted, warmup, *over = self.asked[number]
            steps = max(inner + 1 if number == index else 1, int(wanted * share))
            now[number] = [
                steps,
                warmup if warmup < 1 else float(int(warmup * steps / wanted)),
                *(math.ceil(course * steps / wanted) for course in over),
            ]
        planned_now, before = int(sum(row[0] for row in now)), total(job.phases)
        if abs(planned_now - before) <= SLACK * (before - step):
            return None
        plan = {"after": step, "was": table(job.phases), "now": now}
        Run(self.folder).set(plans=[*self.plans, plan])
        detail(
            f"deadline: a step takes {pace:.3g} s; {before:,} steps became {planned_now:,}, of which {step:,} are done"
        )
        return now

    def _share(self, left: float, costs: list[float], first: int) -> float:
        """Of the steps asked for from a phase on: how large a part fits."""
        whole = 0.0
        for row, cost in zip(self.asked[first:], costs[first:], strict=True):
            whole += row[0] * cost
        return min(1.0, max(0.0, left / whole)) if whole else 0.0


def _whole_steps(phase: Phase, steps: int) -> float:
    """As many of the whole batch as the first so many of a phase have rows."""
    return phase.rows_of(steps)[0] / phase.batch


def _share_of_batch(phases: Sequence[Phase], step: int) -> float:
    """Which part of its phase's batch a step of the run (1 is the first) has."""
    index, inner = locate(phases, step - 1)
    return phases[index].rows_of(inner)[1] / phases[index].batch


def table(phases: Sequence[Phase]) -> Table:
    """Phases as a plan."""
    return [[p.steps, p.warmup, *([p.schedule.over] if p.schedule.over else [])] for p in phases]


def planned(recipe: R, plan: Table) -> R:
    phases = []
    for phase, (steps, warmup, *over) in zip(recipe.phases, plan, strict=True):
        schedule = dataclasses.replace(phase.schedule, over=int(over[0]) if over else 0)
        phases.append(dataclasses.replace(phase, steps=int(steps), warmup=warmup, schedule=schedule))
    return recipe.with_phases(phases)


def in_force(recipe: R, plans: Sequence[dict[str, Any]], step: int) -> R:
    """A recipe as it was planned when so many steps were done."""
    plan = next((plan["was"] for plan in plans if step < plan["after"]), plans[-1]["now"] if plans else None)
    return recipe if plan is None else planned(recipe, plan)
