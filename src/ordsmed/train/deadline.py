"""A deadline: the numbers of steps are planned again while a run goes, by the speed that its steps really have.

The run's status keeps every change of plan with the step after which it holds, so a resumed run follows the same plans.
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
from ordsmed.base.say import detail, duration, say
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.train.job import Job
from ordsmed.train.training import Training

R = TypeVar("R", bound=Training)
Table = list[list[float]]  # steps and warm-up of every phase, and its `schedule.over` where that is said

RESERVE = 0.95  # of a deadline is planned; the rest is for checkpoints, the end and a slower hour
COLD = 2  # steps at the start of a phase or of a process that are slower than those after them
FIRST = 4  # step of a phase after which the plan is first checked
PARTS = 8  # of a plan, after each of which it is checked
SLACK = 0.1  # of the steps that are left: a smaller change is not made
MOST_MORE = 1.1  # times the share of its steps that the phase before had, which a phase may have
ROUNDS = 4  # in which steps and validations are fitted to each other
PRINTED = 0.2  # of the steps last printed: a smaller change is kept in the status and the log, but not printed
SANE = 0.1  # of the steps asked for: with fewer the rates of the recipe may mean little


def warn(steps: int, wanted: int) -> None:
    """Report that a plan has only a small part of the steps asked for."""
    if steps < SANE * wanted:
        say(f"--deadline: {steps / wanted:.2%} of the recipe's steps; its rate and warm-up were made for all of them")


def scaled_warmup(warmup: float, share: float) -> float:
    """Return the warm-up for `share` of the steps: a number of steps shrinks, to 1 at least; a share stays."""
    return warmup if warmup < 1 else float(max(1, int(warmup * share)))


def difference(before: Table, after: Table) -> str:
    """Return the change from one plan to another in words, warm-ups included."""
    columns = (("steps", 0), ("warm-up", 1))
    old, new = ({name: [row[n] for row in rows] for name, n in columns} for rows in (before, after))
    changed = [f"{name} {_numbers(old[name])} became {_numbers(new[name])}" for name in old if old[name] != new[name]]
    return ", ".join(changed)


def _numbers(values: Sequence[float]) -> str:
    return " + ".join(f"{value:,.4g}" if value % 1 else f"{int(value):,}" for value in values)


@dataclass
class Deadline:
    """The plans of a run that has to end in time."""

    folder: Path
    seconds: float  # from its first start; of a resumed run: of training
    asked: Table
    learning: list[float]  # seconds of a warm step of each phase, as they were timed before the run
    judging: float  # seconds of a validation
    used: float  # seconds before this process trained
    every: int = 0  # steps between validations; 0: none, or their number does not depend on the steps
    rest: float = 0.0  # of all validations whose number is fixed, seconds in all
    ending: float | None = None  # seconds after the last step; None: those of a validation
    plans: list[dict[str, Any]] = field(default_factory=list)  # after which step which plan became which
    began: float = field(default_factory=time.perf_counter)
    spent: list[float] = field(default_factory=list)  # seconds of the steps since the plan was checked
    phase: int = -1  # to which they belong
    cold: int = COLD  # of them at the start, which are not counted
    printed: Table = field(default_factory=list)  # the plan that was printed last

    @staticmethod
    def of(folder: Path, recipe: Training, start: int, used: float) -> Deadline | None:
        """Return the deadline of a run, or None if it has none."""
        status = Run(folder).status
        if "fit" not in status:
            return None
        every, fixed = recipe.validation_cost(status["fit"]["judging"])
        return Deadline(folder, status["deadline"], used=used if start else time.time() - status["began"],
                        every=recipe.validation_interval if every else 0, rest=fixed,
                        plans=list(status.get("plans", [])), **status["fit"])  # fmt: skip

    def replan(self, job: Job, step: int, seconds: float) -> Table | None:
        """After step `step`, which took `seconds`: return the plan from now on if it changes; equal on all ranks."""
        index, inner = locate(job.phases, step - 1)
        if index != self.phase:
            self.phase, self.spent, self.cold = index, [], COLD
        self.spent.append(seconds / _share_of_batch(job.phases, step))
        if self.plans and step <= self.plans[-1]["after"]:  # a resumed run follows what was decided before
            return next((plan["now"] for plan in self.plans if plan["after"] == step), None)
        warm = self.spent[self.cold :]
        if len(warm) < 2 or not _is_checked(inner + 1, step, total(job.phases)):
            return None
        run_ahead = job.ranks.device.type == "cuda"  # a GPU is waited for only now and then: only the mean is true
        pace, self.spent, self.cold = (statistics.fmean if run_ahead else statistics.median)(warm), [], 1
        new_plan = first_alone(job.ranks, lambda: self._plan(job, step, pace))
        if new_plan:
            self.plans.append({"after": step, "was": table(job.phases), "now": new_plan})
        return new_plan

    def _plan(self, job: Job, step: int, pace: float) -> Table | None:
        """On the first rank: decide, and write the decision down before another step is trained."""
        index, inner = locate(job.phases, step)
        if not inner:
            return None  # between phases
        expected, slower = self.learning[index], pace / self.learning[index]
        left = self._left(last=index == len(self.asked) - 1)
        left -= slower * (self.judging if self.ending is None else self.ending)
        before, steps = table(job.phases), total(job.phases)
        now = before
        for _ in range(ROUNDS):  # the validations that are left depend on the steps
            between = self.rest * slower * (1 - step / sum(row[0] for row in now))
            now = self._fitting(job, index, inner, slower, left - between)
        planned_now = int(sum(row[0] for row in now))
        if abs(planned_now - steps) <= SLACK * (steps - step):
            return None
        Run(self.folder).set(plans=[*self.plans, {"after": step, "was": before, "now": now}])
        reason = f"a step takes {pace:.3g} s, {expected:.3g} s when timed before; {duration(left)} are left"
        self._print(step, before, now, reason)
        return now

    def _print(self, step: int, before: Table, now: Table, reason: str) -> None:
        """Print a change of plan that is large compared to the one printed last; write a small one to the log alone."""
        self.printed = self.printed or before
        was, steps = (sum(row[0] for row in plan) for plan in (self.printed, now))
        if abs(steps - was) > PRINTED * was:
            say(f"deadline, step {step:,}: {difference(self.printed, now)}; {reason}")
            self.printed = now
        else:
            detail(f"deadline, step {step:,}: {difference(before, now)}; {reason}")

    def _fitting(self, job: Job, index: int, inner: int, slower: float, left: float) -> Table:
        """Return the plan from step `inner` of phase `index` on that takes `left` seconds.

        `slower`: times as long as they were timed before the run steps take now.
        """
        judging = self.judging * slower
        costs = [slower * tried + (judging / self.every if self.every else 0.0) for tried in self.learning]
        tried = zip(self.learning, job.phases, strict=True)  # what batches that grow save, however many steps there are
        saved = [slower * each_step * (phase.steps - phase.whole_steps) for each_step, phase in tried]
        done = inner * costs[index] - slower * self.learning[index] * (inner - _whole_steps(job.phases[index], inner))
        now, share = table(job.phases), self._share(left + done + sum(saved[index:]), costs, index)
        if index:  # later phases keep to the share of the first
            share = min(share, MOST_MORE * job.phases[index - 1].steps / self.asked[index - 1][0])
        if self.asked[index][0] * share < inner + 1:  # one more step of this phase, and the rest for the next phases
            share = self._share(left - costs[index] + sum(saved[index + 1 :]), costs, index + 1)
        for number in range(index, len(now)):
            wanted, warmup, *over = self.asked[number]
            steps = max(inner + 1 if number == index else 1, int(wanted * share))
            span = [math.ceil(length * steps / wanted) for length in over]
            now[number] = [steps, scaled_warmup(warmup, steps / wanted), *span]
        return now

    def _left(self, *, last: bool) -> float:
        """Return the seconds that are left for steps and validations; the last phase may use up the reserve."""
        left = self.seconds - self.used - (time.perf_counter() - self.began)
        return left * RESERVE if last else left - (1 - RESERVE) * self.seconds

    def _share(self, left: float, costs: list[float], first: int) -> float:
        """Return which part of the steps asked for, from phase `first` on, fits into the seconds that are left."""
        whole = 0.0
        for row, cost in zip(self.asked[first:], costs[first:], strict=True):
            whole += row[0] * cost
        return min(1.0, max(0.0, left / whole)) if whole else 0.0


def _is_checked(inner: int, step: int, steps: int) -> bool:
    """Is the plan checked after step `inner` of a phase: the 4th, 8th, 16th ..., and each eighth of the run?"""
    return (inner >= FIRST and inner & (inner - 1) == 0) or (step >= FIRST and step % max(1, steps // PARTS) == 0)


def _whole_steps(phase: Phase, steps: int) -> float:
    """Return how many full batches the first `steps` steps of `phase` are worth."""
    return phase.rows_of(steps)[0] / phase.batch


def _share_of_batch(phases: Sequence[Phase], step: int) -> float:
    """Return which part of its phase's batch a step of the run (1 is the first) has."""
    index, inner = locate(phases, step - 1)
    return phases[index].rows_of(inner)[1] / phases[index].batch


def table(phases: Sequence[Phase]) -> Table:
    """Return phases as a plan."""
    return [[p.steps, p.warmup, *([p.schedule.over] if p.schedule.over else [])] for p in phases]


def planned(recipe: R, plan: Table) -> R:
    """Return a recipe with the steps, warm-ups and schedules of a plan."""
    phases = []
    for phase, (steps, warmup, *over) in zip(recipe.phases, plan, strict=True):
        schedule = dataclasses.replace(phase.schedule, over=int(over[0]) if over else 0)
        phases.append(dataclasses.replace(phase, steps=int(steps), warmup=warmup, schedule=schedule))
    return recipe.with_phases(phases)


def in_force(recipe: R, plans: Sequence[dict[str, Any]], step: int) -> R:
    """Return a recipe by the plan that was in force when `step` steps were done."""
    plan = next((plan["was"] for plan in plans if step < plan["after"]), plans[-1]["now"] if plans else None)
    return recipe if plan is None else planned(recipe, plan)
