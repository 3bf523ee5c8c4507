"""Deadlines: change the numbers of steps during a run, by the measured time of its steps.

The run's status keeps every change of plan with the step after which it applies, so a resumed run follows the same
plans.
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

from ordsmed.base.ranks import on_rank0
from ordsmed.base.run import Run
from ordsmed.base.say import detail, duration, say
from ordsmed.learn.phases import Phase, locate, total
from ordsmed.train.job import Job
from ordsmed.train.training import Training

R = TypeVar("R", bound=Training)
Table = list[list[float]]  # for each phase: steps, warm-up and, if set, `schedule.over`

RESERVE = 0.95  # share of a deadline that is planned; the rest is for checkpoints, the end and slower steps
COLD = 2  # steps at the start of a phase or of a process that are slower than those after them
FIRST = 4  # step of a phase after which the plan is first checked
PARTS = 8  # the plan is checked after each of this many parts of the run
SLACK = 0.1  # share of the remaining steps; smaller changes are not made
MOST_MORE = 1.1  # a phase may keep at most this many times the share of steps that the phase before kept
ROUNDS = 4  # iterations that fit steps and validations to each other
PRINTED = 0.2  # share of the steps printed last; smaller changes are only recorded and logged
MIN_SHARE = 0.1  # share of the recipe's steps; with fewer, its learning rates may not be suitable


def warn_if_short(steps: int, wanted: int) -> None:
    if steps < MIN_SHARE * wanted:
        say(f"--deadline: {steps / wanted:.2%} of the recipe's steps, for which its rate and warm-up were chosen")


def scaled_warmup(warmup: float, share: float) -> float:
    """Return the warm-up for `share` of the steps. A warm-up in steps is scaled; a share is not."""
    return warmup if warmup < 1 else float(max(1, int(warmup * share)))


def difference(before: Table, after: Table) -> str:
    columns = (("steps", 0), ("warm-up", 1))
    old, new = ({name: [row[n] for row in rows] for name, n in columns} for rows in (before, after))
    changed = [f"{name} {_numbers(old[name])} became {_numbers(new[name])}" for name in old if old[name] != new[name]]
    return ", ".join(changed)


def _numbers(values: Sequence[float]) -> str:
    return " + ".join(f"{value:,.4g}" if value % 1 else f"{int(value):,}" for value in values)


@dataclass
class Deadline:
    folder: Path
    seconds: float  # from the first start of the run; after a resume: seconds of training
    asked: Table
    learning: list[float]  # seconds of a warm step of each phase, as timed before the run
    judging: float  # seconds of a validation
    used: float  # seconds before this process trained
    every: int = 0  # steps between validations; 0: none, or their number does not depend on the steps
    rest: float = 0.0  # seconds of all validations together, if their number is fixed
    ending: float | None = None  # seconds needed after the last step; None: those of a validation
    plans: list[dict[str, Any]] = field(default_factory=list)  # changes of plan: after which step, old plan, new plan
    began: float = field(default_factory=time.perf_counter)
    spent: list[float] = field(default_factory=list)  # seconds of the steps since the last check of the plan
    phase: int = -1  # the phase of those steps
    cold: int = COLD  # steps at the start of `spent` that are not counted
    printed: Table = field(default_factory=list)  # the plan printed last

    @staticmethod
    def of(folder: Path, recipe: Training, start: int, used: float) -> Deadline | None:
        status = Run(folder).status
        if "fit" not in status:
            return None
        every, fixed = recipe.validation_cost(status["fit"]["judging"])
        return Deadline(
            folder,
            status["deadline"],
            used=used if start else time.time() - status["began"],
            every=recipe.validation_interval if every else 0,
            rest=fixed,
            plans=list(status.get("plans", [])),
            **status["fit"],
        )

    def replan(self, job: Job, step: int, seconds: float) -> Table | None:
        """Return the new plan after step `step`, which took `seconds`, or None to keep the plan; equal on all ranks."""
        index, inner = locate(job.phases, step - 1)
        if index != self.phase:
            self.phase, self.spent, self.cold = index, [], COLD
        self.spent.append(seconds / _share_of_batch(job.phases, step))
        if self.plans and step <= self.plans[-1]["after"]:  # a resumed run follows the recorded plans
            return next((plan["now"] for plan in self.plans if plan["after"] == step), None)
        warm = self.spent[self.cold :]
        if len(warm) < 2 or not _is_time_to_check(inner + 1, step, total(job.phases)):
            return None
        run_ahead = job.ranks.device.type == "cuda"  # a GPU runs asynchronously: only the mean is exact
        pace, self.spent, self.cold = (statistics.fmean if run_ahead else statistics.median)(warm), [], 1
        new_plan = on_rank0(job.ranks, lambda: self._plan(job, step, pace))
        if new_plan:
            self.plans.append({"after": step, "was": table(job.phases), "now": new_plan})
        return new_plan

    def _plan(self, job: Job, step: int, pace: float) -> Table | None:
        """Return a new plan or None, and record a new one before the next step. Called on the first rank only."""
        index, inner = locate(job.phases, step)
        if not inner:
            return None  # between phases
        expected, slower = self.learning[index], pace / self.learning[index]
        left = self._left(last=index == len(self.asked) - 1)
        left -= slower * (self.judging if self.ending is None else self.ending)
        before, steps = table(job.phases), total(job.phases)
        now = before
        for _ in range(ROUNDS):  # the number of remaining validations depends on the steps
            between = self.rest * slower * (1 - step / sum(row[0] for row in now))
            now = self._plan_for(job, index, inner, slower, left - between)
        planned_now = int(sum(row[0] for row in now))
        if abs(planned_now - steps) <= SLACK * (steps - step):
            return None
        Run(self.folder).set(plans=[*self.plans, {"after": step, "was": before, "now": now}])
        reason = f"a step takes {pace:.3g} s, and took {expected:.3g} s before the run; {duration(left)} are left"
        self._print(step, before, now, reason)
        return now

    def _print(self, step: int, before: Table, now: Table, reason: str) -> None:
        """Print a change of plan if it is large; otherwise only log it."""
        self.printed = self.printed or before
        was, steps = (sum(row[0] for row in plan) for plan in (self.printed, now))
        if abs(steps - was) > PRINTED * was:
            say(f"deadline, step {step:,}: {difference(self.printed, now)}; {reason}")
            self.printed = now
        else:
            detail(f"deadline, step {step:,}: {difference(before, now)}; {reason}")

    def _plan_for(self, job: Job, index: int, inner: int, slower: float, left: float) -> Table:
        """Return the plan from step `inner` of phase `index` on that takes `left` seconds.

        `slower` is the factor by which steps are slower now than when they were timed before the run.
        """
        judging = self.judging * slower
        costs = [slower * tried + (judging / self.every if self.every else 0.0) for tried in self.learning]
        tried = zip(self.learning, job.phases, strict=True)  # batch ramps save this time for any number of steps
        saved = [slower * each_step * (phase.steps - phase.whole_steps) for each_step, phase in tried]
        done = inner * costs[index] - slower * self.learning[index] * (inner - _whole_steps(job.phases[index], inner))
        now, share = table(job.phases), self._share(left + done + sum(saved[index:]), costs, index)
        if index:  # later phases are not cut less than the phase before
            share = min(share, MOST_MORE * job.phases[index - 1].steps / self.asked[index - 1][0])
        if self.asked[index][0] * share < inner + 1:  # train one more step of this phase and scale the next phases
            share = self._share(left - costs[index] + sum(saved[index + 1 :]), costs, index + 1)
        for number in range(index, len(now)):
            wanted, warmup, *over = self.asked[number]
            steps = max(inner + 1 if number == index else 1, int(wanted * share))
            span = [math.ceil(length * steps / wanted) for length in over]
            now[number] = [steps, scaled_warmup(warmup, steps / wanted), *span]
        return now

    def _left(self, *, last: bool) -> float:
        left = self.seconds - self.used - (time.perf_counter() - self.began)
        return left * RESERVE if last else left - (1 - RESERVE) * self.seconds

    def _share(self, left: float, costs: list[float], first: int) -> float:
        """Return the share of the recipe's steps, from phase `first` on, that fits into `left` seconds."""
        whole = 0.0
        for row, cost in zip(self.asked[first:], costs[first:], strict=True):
            whole += row[0] * cost
        return min(1.0, max(0.0, left / whole)) if whole else 0.0


def _is_time_to_check(inner: int, step: int, steps: int) -> bool:
    """Return whether to check the plan: after step 4, 8, 16 ... of a phase, and after each eighth of the run."""
    return (inner >= FIRST and inner & (inner - 1) == 0) or (step >= FIRST and step % max(1, steps // PARTS) == 0)


def _whole_steps(phase: Phase, steps: int) -> float:
    """Return how many full batches the first `steps` steps of `phase` are worth."""
    return phase.rows_of(steps)[0] / phase.batch


def _share_of_batch(phases: Sequence[Phase], step: int) -> float:
    index, inner = locate(phases, step - 1)
    return phases[index].rows_of(inner)[1] / phases[index].batch


def table(phases: Sequence[Phase]) -> Table:
    return [[p.steps, p.warmup, *([p.schedule.over] if p.schedule.over else [])] for p in phases]


def planned(recipe: R, plan: Table) -> R:
    phases = []
    for phase, (steps, warmup, *over) in zip(recipe.phases, plan, strict=True):
        schedule = dataclasses.replace(phase.schedule, over=int(over[0]) if over else 0)
        phases.append(dataclasses.replace(phase, steps=int(steps), warmup=warmup, schedule=schedule))
    return recipe.with_phases(phases)


def plan_at(recipe: R, plans: Sequence[dict[str, Any]], step: int) -> R:
    plan = next((plan["was"] for plan in plans if step < plan["after"]), plans[-1]["now"] if plans else None)
    return recipe if plan is None else planned(recipe, plan)
