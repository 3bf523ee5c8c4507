"""A deadline: the plan is made again by the true speed, written down, and followed by who goes on, to the same bits."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed import cli
from ordsmed.base import settings
from ordsmed.base.errors import RecipeError
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.base.say import duration
from ordsmed.cli.recipes import train
from ordsmed.learn.phases import BatchRamp, Phase
from ordsmed.learn.schedules import Schedule
from ordsmed.train import deadline, fitting, loop, request, resume, runner
from ordsmed.train.deadline import Deadline, plan_at, planned, table
from ordsmed.train.job import Job
from ordsmed.train.meters import read
from ordsmed.train.pretrain import texts
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining
from ordsmed.train.request import read as read_recipe

Recipe = Callable[..., Path]


def phases(*steps: int, warmup: float = 0.0) -> tuple[Phase, ...]:
    return tuple(Phase(steps=n, length=8, batch=2, learning_rate=1.0, warmup=min(warmup, n)) for n in steps)


def looked(
    tmp_path: Path,
    now: tuple[Phase, ...],
    asked: tuple[Phase, ...],
    *,
    seconds: float,
    step: int,
    each: float,
    learning: list[float],
    used: float = 0.0,
    judging: float = 0.0,
) -> Any:
    """What becomes of a plan after a step, where steps take so long."""
    end = Deadline(tmp_path, seconds, table(asked), learning, judging, used)
    end.began = deadline.time.perf_counter() - step * each
    end.phase, end.spent = 0, [99.0, 50.0, *[each / deadline._share_of_batch(now, step)] * (step - 3)]
    job = SimpleNamespace(phases=now, ranks=Ranks(torch.device("cpu")))
    found = end.replan(job, step, each)
    assert (Run(tmp_path).status.get("plans") or [{}])[-1].get("now") == found
    return found


def test_a_plan_that_was_too_small_is_mended(tmp_path: Path) -> None:
    """1,600 steps became 32 while others kept the machine busy; half of them fit, warm-up included."""
    found = looked(
        tmp_path, phases(32, warmup=3), phases(1600, warmup=160), seconds=800 / 0.95, step=4, each=1.0, learning=[25.0]
    )
    [[steps, warmup]] = found
    assert 798 <= steps <= 802
    assert warmup == int(160 * steps / 1600)


def test_a_plan_never_has_more_steps_than_asked(tmp_path: Path) -> None:
    asked = phases(100)
    assert looked(tmp_path, phases(20), asked, seconds=1e6, step=4, each=1.0, learning=[1.0]) == table(asked)


def test_a_plan_that_was_too_large_is_cut(tmp_path: Path) -> None:
    found = looked(
        tmp_path, phases(100, 100), phases(100, 100), seconds=250 / 0.95, step=16, each=1.0, learning=[0.5, 2.0]
    )
    assert [row[0] for row in found] == [49, 49]


@pytest.mark.parametrize("seconds", [1.0, 15.9])
def test_a_deadline_that_has_passed_ends_soon(tmp_path: Path, seconds: float) -> None:
    found = looked(tmp_path, phases(100, 50), phases(100, 50), seconds=seconds, step=16, each=1.0, learning=[1.0, 1.0])
    assert [row[0] for row in found] == [17, 1]


@pytest.mark.parametrize(
    ("step", "each", "why"),
    [
        (16, 1.05, "as planned, nearly"),
        (17, 5.0, "no step to look"),
        (2, 9.0, "too early"),
        (64, 9.0, "between phases"),
    ],
)
def test_a_plan_that_holds_is_left(tmp_path: Path, step: int, each: float, why: str) -> None:
    asked = phases(64, 64)
    assert looked(tmp_path, asked, asked, seconds=128 / 0.95, step=step, each=each, learning=[1.0, 1.0]) is None


@pytest.mark.parametrize(("more", "fit"), [({}, 100), ({"used": 40 / 0.95}, 60), ({"judging": 50.0}, 50)])
def test_what_was_used_before_and_validations_count(tmp_path: Path, more: dict[str, float], fit: int) -> None:
    how = {"seconds": 100 / 0.95, "step": 16, "each": 1.0, "learning": [1.0]}
    [[steps, _]] = looked(tmp_path, phases(30), phases(200), **how, **more)  # type: ignore[arg-type]
    assert abs(steps - fit) <= 2


def test_steps_of_a_small_batch_tell_of_the_whole_one(tmp_path: Path) -> None:
    ramp = BatchRamp(start=2, over=40.0)
    asked = tuple(dataclasses.replace(phase, batch=8, batch_ramp=ramp) for phase in phases(100))
    cost = asked[0].whole_steps
    how = {"step": 8, "each": 0.25, "learning": [1.0]}
    assert looked(tmp_path, asked, asked, seconds=cost / 0.95, **how) is None  # type: ignore[arg-type]
    [[steps, _]] = looked(tmp_path, asked, asked, seconds=(cost - 30) / 0.95, **how)  # type: ignore[arg-type]
    assert abs(steps - 70) <= 1
    cut = planned(SimpleNamespace(phases=asked, with_phases=tuple), [[steps, 0.0]])
    assert [cut[0].rows_of(step) for step in range(70)] == [asked[0].rows_of(step) for step in range(70)]


def test_plans_in_force() -> None:
    recipe = SimpleNamespace()
    plans = [{"after": 4, "was": [[9, 0]], "now": [[20, 0]]}, {"after": 8, "was": [[20, 0]], "now": [[15, 0]]}]
    real, deadline.planned = deadline.planned, lambda _, plan: plan
    try:
        assert [plan_at(recipe, plans, step)[0][0] for step in (0, 3, 4, 7, 8, 20)] == [9, 9, 20, 20, 15, 15]
        assert plan_at(recipe, [], 3) is recipe
    finally:
        deadline.planned = real
    assert planned is real


def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, costs: list[float], seconds: float) -> Any:
    """Fit and train a plan of 20,000 and 10,000 steps; a phase's first two steps take twice as long, and the very first
    a second more."""
    recipe, cold = Plain(tuple(dataclasses.replace(phase, warmup=10) for phase in phases(20_000, 10_000))), [1.0]

    def cost(index: int, inner: int) -> float:
        return costs[index] * (2 if inner < 2 else 1) + (cold.pop() if cold else 0.0)

    def update(job: Any, batches: Any, rate: float, index: int, inner: int) -> tuple[int, float]:
        clock.now += cost(index, inner)
        return 0, 0.0

    monkeypatch.setattr(fitting.loop, "train_step", update)
    monkeypatch.setattr(fitting, "load", lambda rows, share, first, stop, **_: range(stop))
    job = trial_job(20_000, 10_000)
    job.data.validation_seconds = lambda job: 0.0
    start, ranks = clock.now, SimpleNamespace(total=lambda numbers: numbers, data_world=1, store=None)
    plan: Any = SimpleNamespace(recipe=recipe, ranks=ranks, build=lambda: job, final_validations=1.0)
    fit, facts = fitting.fit(plan, seconds)
    end, step = Deadline(tmp_path, seconds, used=clock.now - start, **facts), 0
    end.began = clock.now
    while step < sum(phase.steps for phase in fit.phases):
        took = cost(*deadline.locate(fit.phases, step))
        clock.now, step = clock.now + took, step + 1
        if change := end.replan(job_of(*fit.phases), step, took):
            fit = planned(fit, change)
    return [phase.steps for phase in fit.phases], [phase.warmup for phase in fit.phases], clock.now - start


def test_small_changes_of_plan_are_kept_but_not_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A change is compared to the plan that was printed last, so small ones that add up are printed."""
    end, now = Deadline(tmp_path, 1e6, table(phases(9000)), [1.0], 0.0, 0.0), phases(1000)
    for step, steps in {4: 1150, 8: 1020, 16: 1300, 32: 1150, 64: 1000}.items():
        monkeypatch.setattr(Deadline, "_plan_for", lambda *_, steps=steps: [[steps, 0.0]])
        end.spent, end.phase = [1.0] * 9, 0
        end.replan(SimpleNamespace(phases=now, ranks=Ranks(torch.device("cpu"))), step, 1.0)  # type: ignore[arg-type]
        now = phases(steps)
    assert [plan["now"][0][0] for plan in Run(tmp_path).status["plans"]] == [1150, 1020, 1300, 1150, 1000]
    printed = [line.partition(";")[0] for line in capsys.readouterr().err.splitlines()]
    assert printed == ["deadline, step 16: steps 1,000 became 1,300", "deadline, step 64: steps 1,300 became 1,000"]


@pytest.mark.parametrize("costs", [[0.034, 0.034], [0.034, 0.09], [0.09, 0.02]])
@pytest.mark.parametrize("seconds", [20.0, 120.0])
def test_phases_share_the_time_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock, costs: list[float], seconds: float
) -> None:
    """Cold steps took part in the plan once: 20,000 and 10,000 steps ended as 420 and 77."""
    (first, second), warmups, took = simulated(tmp_path, monkeypatch, clock, costs, seconds)
    assert 1.8 < first / second < 2.3
    assert 0.85 * seconds < took <= seconds
    assert warmups == [1.0, 1.0]


@pytest.mark.long
@pytest.mark.parametrize("stands", [2, 4, 6, 10])
def test_who_goes_on_follows_the_same_plans(recipe: Recipe, monkeypatch: pytest.MonkeyPatch, stands: int) -> None:
    """Killed before, at and after a change of plan: the same numbers of steps, the same rates, the same bits."""
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
    decided = {4: [[20, 2.0]], 8: [[12, 2.0]]}

    def plan(self: Deadline, job: Any, step: int, each: float) -> Any:
        found = decided.get(step)
        if found:
            Run(self.folder).set(plans=[*self.plans, {"after": step, "was": table(job.phases), "now": found}])
        return found

    monkeypatch.setattr(Deadline, "_plan", plan)
    monkeypatch.setattr(
        "ordsmed.train.session.fit",
        lambda plan, seconds: (
            planned(plan.recipe, [[10, 2.0]]),
            {"asked": table(plan.recipe.phases), "learning": [1.0], "judging": 0.0},
        ),
    )
    whole = pretrain(str(recipe("whole", steps=60, save=2, keep=99)), deadline=99.0)
    lines = [line for line in read(whole / "metrics.jsonl") if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert "steps = 12\n" in (whole / "recipe.toml").read_text()
    assert Run(whole).status["steps_asked"] == [60]
    cut = whole.parent / "cut"
    shutil.copytree(whole, cut)
    for step in range(stands + 2, 14, 2):
        shutil.rmtree(cut / "checkpoints" / f"step-{step:09d}", ignore_errors=True)
    Run(cut).set(state="running")
    again_asked: list[int] = []
    monkeypatch.setattr(Deadline, "_plan", lambda self, job, step, each: again_asked.append(step))
    pretrain(str(cut))
    assert min([9, *again_asked]) > 8, "it was decided before"
    again = [line for line in read(cut / "metrics.jsonl") if "loss" in line]
    exact = ("step", "loss", "rate", "norm")
    assert [[line[k] for k in exact] for line in again] == [[line[k] for k in exact] for line in lines]
    assert (cut / "recipe.toml").read_text() == (whole / "recipe.toml").read_text()


@pytest.mark.parametrize("value", ["yesterday", "-1h", "nan", "inf", "0s", "3", "1e99h", "h", "9" * 30 + "d"])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_deadlines_that_cannot_be(capsys: pytest.CaptureFixture[str], value: str, more: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"^1$"):
        cli.main(["pretrain", "tiny/bert", f"--deadline={value}", *more])
    assert capsys.readouterr().err.startswith(f"ordsmed: --deadline: '{value}' is not a time: wanted for example 3h")


class Clock:
    """Seconds that pass only where a test lets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    time = perf_counter


@dataclasses.dataclass(frozen=True)
class Plain:
    """As much of a recipe as plans are made of."""

    phase: tuple[Phase, ...]
    validation_interval: int = 0
    fixed: int = 0  # validations whose number does not depend on the steps

    phases = property(lambda self: self.phase)

    def validation_cost(self, seconds: float) -> tuple[float, float]:
        return (seconds / self.validation_interval if self.validation_interval else 0.0), self.fixed * seconds

    def with_phases(self, phases: list[Phase]) -> Plain:
        return dataclasses.replace(self, phase=tuple(phases))

    def with_validations(self, count: int) -> Plain:
        return dataclasses.replace(self, fixed=count)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for place in (deadline, fitting, texts):
        monkeypatch.setattr(place, "time", found)
    return found


def fitted(
    monkeypatch: pytest.MonkeyPatch,
    recipe: Plain,
    seconds: float,
    *,
    judging: float = 0.0,
    spent: float = 0.0,
    world: int = 1,
) -> tuple[Plain, dict[str, Any]]:
    """What becomes of it where a step of phase n takes n seconds."""
    clock = deadline.time
    monkeypatch.setattr(fitting, "_time_steps", lambda job, index, scratch: 1.0 + index)

    def judge(job: Any) -> float:
        clock.now += spent
        return judging

    ranks = SimpleNamespace(total=lambda numbers: numbers * world, data_world=world, store=None)
    job = SimpleNamespace(data=SimpleNamespace(validation_seconds=judge))
    plan: Any = SimpleNamespace(recipe=recipe, ranks=ranks, build=lambda: job, final_validations=1.0)
    return fitting.fit(plan, seconds)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("seconds", "more", "validate", "steps"),
    [
        (95.0, {}, 0, [30, 30]),  # 0.95 of 95 s are 90.25; a step of each phase takes 3
        (105.0, {"spent": 10.0, "world": 2}, 0, [30, 30]),  # what the trial took is gone
        (105.0, {"judging": 9.5}, 0, [30, 30]),  # and what the last validation takes
        (105.0, {"judging": 10.0}, 10, [17, 17]),  # and those on the way
    ],
)
def test_steps_are_fitted_before_the_run(
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    more: dict[str, float],
    validate: int,
    steps: list[int],
) -> None:
    recipe = Plain(phases(60, 60, warmup=6.0), validate)
    found, facts = fitted(monkeypatch, recipe, seconds, **more)
    assert [phase.steps for phase in found.phase] == steps
    assert [phase.warmup for phase in found.phase] == [int(6 * steps[0] / 60)] * 2
    cost = more.get("judging", 0.0)
    assert facts == {"asked": table(recipe.phase), "learning": [1.0, 2.0], "judging": cost, "ending": cost}
    told = capsys.readouterr().err
    warmups = " + ".join([str(int(6 * steps[0] / 60))] * 2)
    changed = f"steps 60 + 60 became {steps[0]} + {steps[1]}, warm-up 6 + 6 became {warmups}"
    assert f"deadline in {duration(seconds)}: {changed}; a step takes 1, 2 s, " in told
    assert "of the recipe's steps" not in told


def test_what_fits_is_left_and_what_hardly_does_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Plain((*phases(50), *phases(50, warmup=0.1)))
    assert fitted(monkeypatch, recipe, 150 / 0.95 + 0.01)[0] is recipe
    assert "deadline in 2 min 37 s: all of 100 steps fit; a step takes 1, 2 s" in capsys.readouterr().err
    small, _ = fitted(monkeypatch, recipe, 14.0 / 0.95)
    assert table(small.phase) == [[4, 0.0], [4, 0.1]]  # a share of the phase stays one
    assert "--deadline: 8.00% of the recipe's steps" in capsys.readouterr().err
    with pytest.raises(RecipeError, match=r"^--deadline: 2 s are left, less .*; wanted 4 s or more$"):
        fitted(monkeypatch, recipe, 2.9)
    with pytest.raises(RecipeError, match=r"^--deadline: 2 s are left, less .*; wanted 25 s or more$"):
        fitted(monkeypatch, recipe, 2.9, spent=10.0, judging=11.0)
    assert table(fitted(monkeypatch, recipe, 25.0, spent=10.0, judging=11.0)[0].phase) == [[1, 0.0], [1, 0.1]]


def test_validations_that_would_take_most_of_the_time_become_fewer(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _ = fitted(monkeypatch, Plain(phases(60), fixed=9), 50.0 / 0.95, judging=10.0)
    assert "validations before the last step became 1; each takes 10 s" in capsys.readouterr().err
    assert (found.fixed, found.phases[0].steps) == (1, 30)


@pytest.mark.parametrize("count", [9, 3, 1, 0])
def test_a_recipe_has_the_validations_that_are_left_to_it(recipe: Recipe, count: int) -> None:
    plain = read_recipe(Pretraining, str(recipe(steps=100, validate=0.1)))
    assert plain.with_validations(count).validations - 1 == count
    in_steps = read_recipe(Pretraining, str(recipe(steps=100, validate=10)))
    assert in_steps.with_validations(count) is in_steps


def test_a_run_knows_its_deadline_and_what_is_used(tmp_path: Path, clock: Clock) -> None:
    assert Deadline.of(tmp_path, Plain(()), 0, 5.0) is None
    Run(tmp_path).set(
        deadline=60.0, began=93.0, plans=[{"after": 4}], fit={"asked": [[9, 0.0]], "learning": [2.0], "judging": 3.0}
    )
    begun, resume_state = (Deadline.of(tmp_path, Plain((), validation_interval=7), start, 5.0) for start in (0, 4))
    assert begun
    assert resume_state
    assert (begun.used, resume_state.used) == (7.0, 5.0)
    assert (begun.seconds, begun.asked, begun.learning, begun.judging, begun.every, begun.plans) == (
        60.0,
        [[9, 0.0]],
        [2.0],
        3.0,
        7,
        [{"after": 4}],
    )


def job_of(*phases: Phase, device: str = "cpu") -> Any:
    return SimpleNamespace(phases=phases, ranks=SimpleNamespace(device=SimpleNamespace(type=device), store=None))


def test_a_plan_is_looked_at_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 4, 8, 16 steps and so on, and after each eighth of the plan; by the median of the warm steps since."""
    seen: list[tuple[int, float]] = []
    monkeypatch.setattr(Deadline, "_plan", lambda self, job, step, each: seen.append((step, each)))
    end = Deadline(tmp_path, 99.0, [[96, 0.0]], [1.0], 0.0, 0.0)
    for step in range(1, 41):
        assert end.replan(job_of(*phases(96)), step, 50.0 if step == 1 else float(step)) is None
    assert seen == [(4, 3.5), (8, 7.0), (12, 11.0), (16, 15.0), (24, 21.0), (32, 29.0), (36, 35.0)]


def test_of_a_gpu_only_the_mean_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs ahead, and is asked now and then: most steps take no time, one that of all."""
    seen: list[float] = []
    monkeypatch.setattr(Deadline, "_plan", lambda self, job, step, each: seen.append(each))
    end = Deadline(tmp_path, 99.0, [[96, 0.0]], [1.0], 0.0, 0.0)
    for step in range(1, 9):
        end.replan(job_of(*phases(96), device="cuda"), step, 9.0 if step in (4, 8) else 0.0)
    assert seen == [4.5, 3.0]


def test_what_was_decided_holds_for_who_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Deadline(
        tmp_path,
        99.0,
        [[96, 0.0]],
        [1.0],
        0.0,
        0.0,
        plans=[{"after": 4, "now": [[50, 0.0]]}, {"after": 8, "now": [[70, 0.0]]}],
    )
    monkeypatch.setattr(Deadline, "_plan", lambda *_: [[60, 0.0]])
    found = {step: end.replan(job_of(*phases(96)), step, 1.0) for step in range(1, 17)}
    assert {step: plan for step, plan in found.items() if plan} == {
        4: [[50, 0.0]],
        8: [[70, 0.0]],
        12: [[60, 0.0]],
        16: [[60, 0.0]],
    }
    assert [(plan["after"], plan["now"][0][0]) for plan in end.plans[2:]] == [(12, 60), (16, 60)]


def plan_of(
    tmp_path: Path,
    clock: Clock,
    now: tuple[Phase, ...],
    asked: tuple[Phase, ...],
    *,
    step: int,
    each: float,
    learning: list[float],
    seconds: float,
    judging: float = 0.0,
    every: int = 0,
) -> Any:
    end = Deadline(tmp_path, seconds / 0.95, table(asked), learning, judging, 0.0, every)
    end.began = clock.now
    return end._plan(job_of(*now), step, each)


@pytest.mark.parametrize(
    ("now", "asked", "more", "wanted"),
    [
        # in the second phase what is left is told by the second's trial: a step takes 3 times as long as there
        ((40, 40), (40, 40), {"step": 56, "each": 6.0, "learning": [1.0, 2.0], "seconds": 24.0}, [40, 20]),
        # a validation every 10 steps costs three times as much as tried, too: 3 s a step, and 30 s the last
        (
            (60,),
            (200,),
            {"step": 50, "each": 3.0, "learning": [1.0], "judging": 10.0, "every": 10, "seconds": 330.0},
            [100],
        ),
        # no less than one step more of this phase, what then is left is the next one's
        ((40, 40), (40, 40), {"step": 32, "each": 1.0, "learning": [1.0, 1.0], "seconds": 11.0}, [33, 10]),
        ((40, 40), (40, 40), {"step": 32, "each": 1.0, "learning": [1.0, 1.0], "seconds": 32.2}, [33, 31]),
        # a change of fewer than a tenth of what is left is none
        ((100,), (100,), {"step": 60, "each": 1.0, "learning": [1.0], "seconds": 36.5}, None),
        ((100,), (100,), {"step": 60, "each": 1.0, "learning": [1.0], "seconds": 34.5}, [94]),
    ],
)
def test_plans_by_hand(
    tmp_path: Path,
    clock: Clock,
    now: tuple[int, ...],
    asked: tuple[int, ...],
    more: dict[str, Any],
    wanted: list[int] | None,
) -> None:
    found = plan_of(tmp_path, clock, phases(*now), phases(*asked), **more)
    assert found == (None if wanted is None else [[steps, 0.0] for steps in wanted])


def test_warm_ups_shrink_with_their_phases_and_all_plans_are_kept(tmp_path: Path, clock: Clock) -> None:
    asked = (*phases(40), *phases(40, warmup=20.0), *phases(40, warmup=0.5))
    end = Deadline(tmp_path, 100 / 0.95, table(asked), [1.0, 1.0, 1.0], 0.0, 20 / 0.95, plans=[{"after": 4}])
    end.began = clock.now
    found = end._plan(job_of(*asked), 8, 1.0)
    assert found == [[28, 0.0], [28, 14.0], [28, 0.5]]
    assert Run(tmp_path).status["plans"] == [{"after": 4}, {"after": 8, "was": table(asked), "now": found}]


def timed_trial(monkeypatch: pytest.MonkeyPatch, clock: Clock, took: list[float], steps: int) -> tuple[float, int]:
    """The seconds of a step that a trial finds where its steps take `took`, and how many steps it took."""
    left = iter(took)

    def update(*_: Any) -> tuple[int, float]:
        clock.now += next(left)
        return 0, 0.0

    monkeypatch.setattr(fitting.loop, "train_step", update)
    monkeypatch.setattr(fitting, "load", lambda rows, share, first, stop, **_: range(stop))
    found = fitting._time_steps(trial_job(steps), 0, Path())
    return found, len(took) - len(list(left))


def trial_job(*steps: int) -> Any:
    return SimpleNamespace(
        rows=lambda index: None,
        share=lambda index: None,
        phases=phases(*steps),
        begin_phase=lambda index: None,
        carry=lambda index: None,
        data=SimpleNamespace(renew=lambda *_: None),
        ranks=Ranks(torch.device("cpu")),
    )


@pytest.mark.parametrize(
    ("took", "steps", "found"),
    [
        (
            [1.379, 0.074, *[0.039, 0.034] * 6],
            99,
            (0.0365, 8),
        ),  # as measured once: the median with cold steps was 0.074
        ([9.0, 3.0, 2.0, 2.5, 99.0], 99, (2.25, 4)),  # slow steps: two warm ones are enough
        ([1.0, 0.001, *[0.001] * 20], 99, (0.001, 14)),
        ([9.0, 3.0, 2.0], 3, (2.0, 3)),
        ([4.0], 1, (4.0, 1)),
    ],
)
def test_a_trial_counts_warm_steps(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, took: list[float], steps: int, found: tuple[float, int]
) -> None:
    seconds, count = timed_trial(monkeypatch, clock, took, steps)
    assert (round(seconds, 6), count) == found


def test_where_a_trial_has_no_room_it_goes_on_with_fewer_rows_at_a_time(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a run without a deadline does; the second phase has longer rows."""
    update, tried = loop.train_step, list[tuple[int, int]]()

    def full(job: Job, batches: Any, rate: float, index: int, inner: int, **more: Any) -> Any:
        tried.append((index, len(batches[0].tokens)))
        if index and tried[-1][1] > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return update(job, batches, rate, index, inner, **more)

    monkeypatch.setattr(loop, "train_step", full)
    second = "[[phase]]\nsteps = 1\nlength = 64\nbatch = 8\nrate = 1e-3"
    folder = pretrain(str(recipe("full", steps=2, extra=second, save=0, validate=0)), deadline=600.0)
    told = capsys.readouterr().err
    for micro in (4, 2):
        assert f"{folder}: out of memory at step 3: the run continues with layout.micro=[8, {micro}]\n" in told
    assert tried == [*[(0, 8), (0, 8), (1, 8)], *[(0, 8), (0, 8), (1, 4)], *[(0, 8), (0, 8), (1, 2)] * 2]
    assert settings.read(folder / "recipe.toml")["layout"]["micro"] == [8, 2]
    assert Run(folder).status["state"] == "done"


def test_only_memory_is_a_reason_for_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(fitting.loop, "train_step", broken)
    monkeypatch.setattr(fitting, "load", lambda *_, **__: [()])
    with pytest.raises(RuntimeError, match="shapes"):
        fitting._time_steps(trial_job(9), 0, Path())


def test_a_validation_is_timed_by_some_of_its_rows(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    data = object.__new__(texts.TextData)
    data.recipe = SimpleNamespace(validation_rows=10 * texts.VALIDATION_ROWS)  # type: ignore[assignment]
    held: list[Any] = [range(1000 * texts.VALIDATION_ROWS)]
    monkeypatch.setattr(type(data), "validation", lambda self, index: held[0])
    monkeypatch.setattr(texts, "validate", lambda job, rows, count: setattr(clock, "now", clock.now + count / 4))
    job: Any = SimpleNamespace(phases=phases(1))
    assert data.validation_seconds(job) == 10 * texts.VALIDATION_ROWS / 4
    held[0] = range(texts.VALIDATION_ROWS // 2)
    assert data.validation_seconds(job) == texts.VALIDATION_ROWS // 2 / 4
    held[0] = None
    assert data.validation_seconds(job) == 0.0


def test_two_steps_after_a_restart_tell_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them is slow."""
    monkeypatch.setattr(Deadline, "_plan", lambda *_: [[60, 0.0]])
    end = Deadline(tmp_path, 99.0, [[96, 0.0]], [1.0], 0.0, 0.0)
    assert [end.replan(job_of(*phases(96)), step, 1.0) for step in (15, 16)] == [None, None]


def test_a_warm_up_is_the_share_of_its_phase_that_it_was(tmp_path: Path, clock: Clock) -> None:
    """Of the steps that it gets, not of those that would fit."""
    asked = phases(40, warmup=20.0)
    more: dict[str, Any] = {"step": 32, "each": 1.0, "learning": [1.0], "seconds": 0.0}
    assert plan_of(tmp_path, clock, asked, asked, **more) == [[33, 16.0]]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_job_and_its_folder_follow_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """What makes the rows goes by it as well; the first rank writes it down."""
    recipe: Any = Plain(phases(9))
    monkeypatch.setattr(runner.settings, "write", lambda recipe: f"steps {recipe.phase[0].steps}")
    own: Any = SimpleNamespace(by=lambda recipe: SimpleNamespace(data=f"data by {recipe.phase[0].steps}"))
    job = Job(recipe, Ranks(torch.device("cpu"), rank, 2), own, own, own, own, own, "fp32")
    new: Any = runner._replanned(own, job, tmp_path, [[5, 0.0]])
    assert (new.recipe.phases[0].steps, new.data, recipe.phase[0].steps) == (5, "data by 5", 9)
    assert new.state is job.state
    written = [path.read_text() for path in tmp_path.glob("recipe.toml")]
    assert written == ([] if rank else ["steps 5"])


@pytest.mark.parametrize(("steps", "share"), [(9, "9.00%"), (10, ""), (11, "")])
def test_few_of_the_steps_that_were_asked_for_are_warned_of(
    steps: int, share: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deadline.warn_if_short(steps, 100)
    said = capsys.readouterr().err
    assert said.startswith(f"--deadline: {share} of the recipe's steps") if share else not said


def test_a_course_of_its_own_length_shrinks_with_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """300 of its 1,000 steps, 400 of them warm-up: as a deadline is planned, and as it is planned again."""
    phase = Phase(steps=300, length=8, batch=2, learning_rate=1.0, warmup=400, schedule=Schedule("cosine", over=1000))
    recipe, _ = fitted(monkeypatch, Plain((phase,)), 95.0)
    (short,) = recipe.phase
    assert (short.steps, short.warmup, short.schedule.over) == (90, 120, 301)
    monkeypatch.undo()
    found = looked(tmp_path, (phase,), (phase,), seconds=150 / 0.95, step=16, each=1.0, learning=[1.0])
    assert found == [[150, 200.0, 500]]
    again = planned(Plain((phase,)), found).phase[0]
    assert (again.steps, again.warmup, again.schedule) == (150, 200.0, Schedule("cosine", over=500))
    assert table((again,)) == found
    assert planned(Plain((phase,)), table(phases(5))).phase[0].schedule.over == 0


def test_plans_from_before_courses_had_lengths_hold() -> None:
    (again,) = planned(Plain(phases(9)), [[4, 1.0]]).phase
    assert (again.steps, again.warmup, again.schedule) == (4, 1.0, Schedule())


def test_the_time_counts_from_the_start_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: Recipe
) -> None:
    """20 seconds took 22.3: what Python and torch take to start is a part of them."""
    monkeypatch.setattr(request.os, "environ", {**os.environ})
    args = argparse.Namespace(
        name="a",
        overrides=[],
        deadline="20s",
        began=123.0,
        devices=0,
        threads=0,
        verbose=False,
        anew=False,
        layout="",
        site="",
        dry_run=False,
        part="",
        words=[],
    )
    seen: list[float] = []
    plain: Any = SimpleNamespace(layout=SimpleNamespace())

    def training(*_: object, **how: Any) -> Any:
        seen.append(request.Request(plain, tmp_path, ()).began)
        return SimpleNamespace(folder=tmp_path)

    train(args, training, training)
    assert seen == [123.0]
    monkeypatch.setattr(request.os, "environ", {})
    args.began = None  # called by another program
    train(args, training, training)
    assert seen[1] > 1e9


def test_a_run_without_a_checkpoint_has_its_deadline_from_now(tmp_path: Path) -> None:
    Run(tmp_path).set(began=5.0)
    asked: Any = SimpleNamespace(began=50.0)
    resume.restart_deadline(tmp_path, asked)
    assert Run(tmp_path).status["began"] == 50.0
    (tmp_path / "checkpoints/step-000000004").mkdir(parents=True)
    resume.restart_deadline(tmp_path, SimpleNamespace(began=90.0))  # type: ignore[arg-type]
    assert Run(tmp_path).status["began"] == 50.0


def test_validations_whose_number_is_fixed_cost_the_same_for_any_steps(tmp_path: Path, clock: Clock) -> None:
    """Ten validations of 2 s each, whatever the steps: half of a plan leaves half of them."""
    recipe = Plain(phases(1000), fixed=10)
    end = Deadline(tmp_path, 100 / 0.95, table(recipe.phase), [1.0], 2.0, 0.0, rest=20.0, ending=2.0)
    end.began = clock.now - 10 / 0.95
    [[steps, _]] = end._plan(job_of(*recipe.phase), 10, 1.0) or [[0, 0]]
    assert abs((steps - 10) + 20 * (1 - 10 / steps) - 88) < 2
