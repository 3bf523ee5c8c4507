"""More time for a run: a phase more where it is done, longer phases where it is under way; killed, it continues."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base import settings, snapshots
from ordsmed.base.errors import DataError
from ordsmed.base.run import Run, read_recipe
from ordsmed.learn.phases import Phase, total
from ordsmed.train.deadline import Deadline
from ordsmed.train.fitting import TooShort
from ordsmed.train.meters import read
from ordsmed.train.pretrain import extension, finish
from ordsmed.train.pretrain.extension import extend
from ordsmed.train.pretrain.pretrain import pretrain
from ordsmed.train.pretrain.recipe import Pretraining

Recipe = Callable[..., Path]
EXACT = ("step", "loss", "rate", "norm")
seconds_of_a_step = extension._seconds_of_a_step  # below, the fixture replaces it


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a second, and the plan of a run holds."""
    monkeypatch.setattr("ordsmed.train.runner.measured_peak", lambda *_: 1e12)
    monkeypatch.setattr(extension, "_seconds_of_a_step", lambda *_: 1.0)
    monkeypatch.setattr(Deadline, "_plan", lambda *_: None)


def learned(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read(folder / "metrics.jsonl") if "loss" in line]


def cut(folder: Path, name: str, *, after: int) -> Path:
    """A copy of a run as it stood when it was killed some time after a step."""
    copy = folder.with_name(name)
    shutil.copytree(folder, copy)
    for step in snapshots.steps(copy / "checkpoints"):
        if step > after:
            shutil.rmtree(snapshots.path_of(copy / "checkpoints", step))
    Run(copy).set(state="running")
    return copy


def test_a_finished_run_gets_a_phase_more(recipe: Recipe) -> None:
    path = recipe(steps=8, keep=9)
    folder = pretrain(str(path))
    before = learned(folder)
    plan = extend(folder, 16.0 / 0.95 + 0.01)
    assert (plan.finished, plan.step, plan.steps) == (True, 8, 16)
    used = sum(line["seconds"] for line in before)
    assert plan.facts["deadline"] == pytest.approx(used + 16.0 / 0.95 + 0.01)
    added = plan.after.phase[1]
    # the rate falls in a line from step 2 to the end of all 24 steps
    assert added.learning_rate == pytest.approx(2e-3 * (24 - 8) / (24 - 2))
    assert "one more phase of 16 steps: its rate rises in 1 step to 1.45e-03, then linear as before" in plan.lines()[0]
    assert Run(folder).status["state"] == "done", "nothing is written by a plan"
    plan.write()
    assert extend(folder, 16.0 / 0.95 + 0.01).after == plan.after, "an extension that was not trained yet is made again"
    pretrain(str(path))
    lines = learned(folder)
    assert lines[:8] == before
    assert [line["step"] for line in lines] == list(range(1, 25))
    assert max(line["rate"] for line in lines[8:]) == pytest.approx(added.learning_rate)
    status = Run(folder).status
    assert (status["state"], status["ends"], status["step"] in (8, 24)) == ("done", [8], True)
    assert 8 in snapshots.steps(folder / "checkpoints")


def test_a_phase_more_is_killed_and_resumed_to_the_same_bits(
    recipe: Recipe, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = pretrain(str(recipe(steps=8, keep=9)))
    extend(folder, 12.0).write()
    killed = cut(folder, "killed", after=8)
    pretrain(str(folder))
    killed_later = cut(folder, "later", after=12)
    for copy in (killed, killed_later):
        pretrain(str(copy))
        assert [[line[key] for key in EXACT] for line in learned(copy)] == [
            [line[key] for key in EXACT] for line in learned(folder)
        ]
    assert "losses will agree" not in capsys.readouterr().err


def test_a_run_under_way_follows_the_longer_schedule(recipe: Recipe) -> None:
    folder = cut(pretrain(str(recipe(steps=12, keep=9))), "stopped", after=8)
    plan = extend(folder, 22.0 / 0.95 + 0.01)
    assert (plan.finished, plan.step, plan.steps) == (False, 8, 22)
    (phase,) = plan.after.phase
    assert (phase.steps, phase.warmup) == (30, 5.0)  # of 12 and 2
    assert plan.rates == pytest.approx((2e-3 * 4 / 10, 2e-3 * 22 / 25))
    assert (
        "the linear schedule of 12 steps is stretched to 30 steps: 1.76e-03 at step 9, instead of 8.00e-04"
        in plan.lines()
    )
    plan.write()
    assert extend(folder, 22.0 / 0.95 + 0.01).after == plan.after
    pretrain(str(folder))
    assert [line["rate"] for line in learned(folder)[7:9]] == pytest.approx([2e-3 * 5 / 10, 2e-3 * 22 / 25])
    assert total(read_recipe(Pretraining, folder).phase) == 30 == learned(folder)[-1]["step"]


def test_extensions_of_extensions_have_the_peak_of_the_first_phase() -> None:
    first = Phase(
        steps=100,
        length=8,
        batch=2,
        learning_rate=1.0,
        schedule=settings.decode(Phase, {"steps": 1, "length": 1, "batch": 1, "learning_rate": 1.0}, "").schedule,
    )
    (_, second), asked = extension._add_phase((first,), 0, 100)
    (*_, third), _ = extension._add_phase((first, second), 1, 100)
    assert (second.learning_rate, third.learning_rate) == pytest.approx((1 / 2, 1 / 3))
    assert asked == [[100, 0.0], [150.0, extension.REWARMING]]
    short = Phase(steps=20, length=8, batch=2, learning_rate=1.0, warmup=0.1)
    assert extension._add_phase((short,), 0, 10_000)[0][1].learning_rate == pytest.approx(1.0, abs=0.01)


def test_a_run_that_ended_early_is_cut_there() -> None:
    phases = tuple(Phase(steps=10, length=8, batch=2, learning_rate=1.0, warmup=0.5) for _ in range(3))
    ended = extension._phases_until(phases, 14)
    assert [phase.steps for phase in ended] == [10, 4]
    assert [ended[1].rate_at(step) for step in range(4)] == [phases[1].rate_at(step) for step in range(4)]
    assert extension._phases_until(phases, 20) == phases[:2]


def test_too_little_time_names_enough(recipe: Recipe) -> None:
    folder = pretrain(str(recipe(steps=4)))
    with pytest.raises(TooShort) as error:
        extend(folder, 5.0)
    assert extend(folder, error.value.seconds).steps == extension.LEAST_STEPS


@pytest.mark.parametrize("keep_best", [True, False])
@pytest.mark.parametrize(("losses", "best"), [({8: 4.5, 24: 4.4}, 24), ({8: 4.5, 24: 4.6}, 8), ({}, 24)])
def test_the_end_before_stays_where_more_steps_made_it_worse(
    recipe: Recipe, keep_best: bool, losses: dict[int, float], best: int
) -> None:
    phases = [Phase(steps=steps, length=8, batch=2, learning_rate=1.0) for steps in (8, 16)]
    planned = settings.decode(Pretraining, settings.read(recipe()), "recipe").with_phases(phases)
    job: Any = SimpleNamespace(recipe=replace(planned, keep_best=keep_best), state=SimpleNamespace(ends=[8]))
    lines = [{"step": step, "phase": 1 if step == 8 else 2, "validation": loss} for step, loss in losses.items()]
    assert (finish._best_step(job, 24, lines) or 24) == best


def test_the_weights_of_the_better_end_are_left(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pretrain(str(recipe(steps=8, keep=1)))
    kept = (folder / "weights/model.safetensors").read_bytes()
    extend(folder, 20.0).write()
    monkeypatch.setattr(finish, "_best_step", lambda job, last_step, lines: 8)
    pretrain(str(folder))
    assert (folder / "weights/model.safetensors").read_bytes() == kept
    assert Run(folder).status["step"] == 8


def test_a_step_takes_the_median_of_the_last_ones_with_the_whole_batch() -> None:
    phases = [Phase(steps=99, length=16, batch=batch, learning_rate=1.0) for batch in (8, 4)]
    recipe: Any = SimpleNamespace(phase=phases)

    def line(seconds: float, phase: int = 1, rows: int = 8) -> dict[str, Any]:
        return {"seconds": seconds, "phase": phase, "rows": rows}

    assert seconds_of_a_step(recipe, [line(1.0), line(9.0), line(3.0)]) == 3.0
    assert seconds_of_a_step(recipe, [line(3.0, 2, 1)]) == 12.0, "a batch that grows has a quarter of its rows"
    last = [line(2.0) for _ in range(extension.MEASURED)]
    assert seconds_of_a_step(recipe, [*[line(9.0)] * 999, *last]) == 2.0
    with pytest.raises(DataError, match="has no training steps"):
        seconds_of_a_step(recipe, [])
