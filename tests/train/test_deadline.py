"""A deadline: the plan is made again by the true speed, written down, and followed by who goes on, to the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ordsmed import cli
from ordsmed.base.ranks import Ranks
from ordsmed.base.run import Run
from ordsmed.learn.phases import Phase
from ordsmed.train import deadline
from ordsmed.train.deadline import Deadline, in_force, planned, table
from ordsmed.train.meters import read
from ordsmed.train.pretrain import pretrain

Recipe = Callable[..., Path]


def phases(*steps: int, warmup: float = 0.0) -> tuple[Phase, ...]:
    return tuple(Phase(steps=n, length=8, batch=2, rate=1.0, warmup=min(warmup, n)) for n in steps)


def looked(tmp_path: Path, now: tuple[Phase, ...], asked: tuple[Phase, ...], *, seconds: float, step: int, each: float,
           learning: list[float], used: float = 0.0, judging: float = 0.0) -> Any:  # fmt: skip
    """What becomes of a plan after a step, where steps take so long."""
    end = Deadline(tmp_path, seconds, table(asked), learning, judging, used)
    end.began = deadline.time.perf_counter() - step * each
    end.spent = [99.0, *[each] * (step - 1)]
    job = SimpleNamespace(phases=now, ranks=Ranks(torch.device("cpu")))
    found = end.look(job, step, each)
    assert (Run(tmp_path).status.get("plans") or [{}])[-1].get("now") == found
    return found


def test_a_plan_that_was_too_small_is_mended(tmp_path: Path) -> None:
    """1,600 steps became 32 while others kept the machine busy; half of them fit, warm-up included."""
    found = looked(tmp_path, phases(32, warmup=3), phases(1600, warmup=160), seconds=800 / 0.95, step=4, each=1.0,
                   learning=[25.0])  # fmt: skip
    [[steps, warmup]] = found
    assert 798 <= steps <= 802
    assert warmup == int(160 * steps / 1600)


def test_a_plan_never_has_more_steps_than_asked(tmp_path: Path) -> None:
    asked = phases(100)
    assert looked(tmp_path, phases(20), asked, seconds=1e6, step=4, each=1.0, learning=[1.0]) == table(asked)


def test_a_plan_that_was_too_large_is_cut(tmp_path: Path) -> None:
    """Later phases by the same share; a step of theirs takes four times as long."""
    found = looked(tmp_path, phases(100, 100), phases(100, 100), seconds=250 / 0.95, step=16, each=1.0,
                   learning=[0.5, 2.0])  # fmt: skip
    assert [row[0] for row in found] == [50, 50]


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


def test_plans_in_force() -> None:
    recipe = SimpleNamespace()
    plans = [{"after": 4, "was": [[9, 0]], "now": [[20, 0]]}, {"after": 8, "was": [[20, 0]], "now": [[15, 0]]}]
    real, deadline.planned = deadline.planned, lambda _, plan: plan
    try:
        assert [in_force(recipe, plans, step)[0][0] for step in (0, 3, 4, 7, 8, 20)] == [9, 9, 20, 20, 15, 15]
        assert in_force(recipe, [], 3) is recipe
    finally:
        deadline.planned = real
    assert planned is real


@pytest.mark.parametrize("stands", [2, 4, 6, 10])
def test_who_goes_on_follows_the_same_plans(recipe: Recipe, monkeypatch: pytest.MonkeyPatch, stands: int) -> None:
    """Killed before, at and after a change of plan: the same numbers of steps, the same rates, the same bits."""
    monkeypatch.setattr("ordsmed.train.deed.measured_peak", lambda *_: 1e12)
    decided = {4: [[20, 2.0]], 8: [[12, 2.0]]}

    def plan(self: Deadline, job: Any, step: int, each: float) -> Any:
        found = decided.get(step)
        if found:
            Run(self.folder).set(plans=[*self.plans, {"after": step, "was": table(job.phases), "now": found}])
        return found

    monkeypatch.setattr(Deadline, "_plan", plan)
    monkeypatch.setattr(deadline, "fit", None)
    monkeypatch.setattr("ordsmed.train.pretrain.fit", lambda recipe, ranks, seconds: (
        planned(recipe, [[10, 2.0]]), {"asked": table(recipe.phase), "learning": [1.0], "judging": 0.0}))  # fmt: skip
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


def test_a_fine_tuning_has_no_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--dry-run"]):
        with pytest.raises(SystemExit, match=r"^1$"):
            cli.main(["finetune", "cola", "--deadline", "3h", *more])
        assert "--deadline: found for " in capsys.readouterr().err
