"""The runner of stages: which stages run, what is recorded, and the seconds used over all sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from ordsmed.base.ending import Stopped
from ordsmed.base.errors import RecipeError
from ordsmed.base.run import Run
from ordsmed.maker import runner
from ordsmed.maker.runner import Clock, JobPlan, Stage, StagedJob, timed
from ordsmed.maker.speedrun.track import SpeedrunRequest


def test_a_killed_session_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    set_time(monkeypatch, runner, monotonic=lambda: now[0])
    place = Run(tmp_path)
    place.set(state="running", seconds=10.0)
    clock = Clock(place)
    now[0] += 50.0
    clock.note()  # and then the process is killed
    assert Clock(Run(tmp_path)).used == 60.0
    with timed(place) as again:
        now[0] += 5.0
        assert again.used == 65.0
    assert place.status["seconds"] == 65.0
    assert not (tmp_path / runner.NOTE).exists()


def test_it_is_noted_while_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BEAT", 0.001)
    place = Run(tmp_path)
    place.set(state="running")
    with timed(place):
        while not (tmp_path / runner.NOTE).exists():
            time.sleep(0.001)
        assert Clock(place).used >= 0.0


def test_time_counts_from_the_start_of_the_process(tmp_path: Path) -> None:
    assert 29.0 < Clock(Run(tmp_path), time.time() - 30.0).used < 40.0
    assert Clock(Run(tmp_path)).used < 5.0


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    (tmp_path / runner.NOTE).write_text("{")
    Run(tmp_path).set(seconds=7.0)
    assert Clock(Run(tmp_path)).used == pytest.approx(7.0, abs=1.0)


class SumPlan(JobPlan):
    seconds = 2.0

    def rows(self) -> list[tuple[str, list[str]]]:
        return [("sum", ["of numbers", "in a file"])]

    def facts(self) -> dict[str, Any]:
        return {}

    def write(self, run_folder: Run) -> dict[str, Any]:
        return {}


class Sum(StagedJob):
    """Adds up the numbers of a file, and then stops or ends."""

    changeable = ("yes",)
    stops = False
    done: list[str]

    def plan(self, status: Mapping[str, Any], used: float) -> JobPlan | None:
        return None if status.get("planned") else SumPlan()

    def stages(self, clock: Clock) -> Iterator[Stage]:
        numbers, total = Path("numbers"), self.folder / "total"

        def add() -> None:
            self.done.append("sum")
            total.write_text(str(sum(map(int, numbers.read_text().split()))))

        yield Stage("sum", add, [total], [numbers, self.request.yes])
        yield Stage("report", lambda: self.done.append("report") or {"total": int(total.read_text())})  # type: ignore[func-returns-value]
        if self.stops:
            raise Stopped(1, 2)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sum:
    monkeypatch.chdir(tmp_path)
    Path("numbers").write_text("1 2")
    job = Sum(SpeedrunRequest("cpu", ("numbers",), "out"))
    job.done = []
    return job


def test_a_finished_stage_is_skipped_while_its_inputs_and_outputs_are_as_they_were(
    job: Sum, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.rehearse(job).lines() == ["  sum        of numbers", "             in a file"]
    assert not job.folder.exists()
    runner.perform(job)
    status = Run(job.folder).status
    assert (job.done, status["state"], status["total"]) == (["sum", "report"], "done", 3)
    assert status["planned"] == {"seconds": 2.0, "lines": ["  sum        of numbers", "             in a file"]}
    assert [*status["stages"]] == ["sum", "report"]
    runner.perform(job)
    assert job.done[2:] == ["report"]
    assert "== sum: is finished\n" in capsys.readouterr().err
    Path("numbers").write_text("1 2 3")
    runner.perform(job)
    assert job.done[3:] == ["sum", "report"]
    (job.folder / "total").unlink()
    runner.perform(job)
    assert job.done[5:] == ["sum", "report"]
    assert Run(job.folder).status["total"] == 6


def test_a_stopped_job_says_how_to_resume_and_keeps_its_request(job: Sum, capsys: pytest.CaptureFixture[str]) -> None:
    job.stops = True
    with pytest.raises(Stopped):
        runner.perform(job)
    assert Run(job.folder).status["state"] == "running"
    assert capsys.readouterr().err.endswith("out: the same `ordsmed speedrun` resumes all of it\n")
    other = Sum(SpeedrunRequest("cpu", ("numbers",), "out", changes=("words=9",)))
    with pytest.raises(RecipeError, match="out: was begun with changes none; found words=9; name another OUT, or add"):
        runner.perform(other)
    other.done = []
    runner.perform(other, anew=True)
    assert other.done == ["sum", "report"]
    assert Run(Path("out.old-1")).status["state"] == "running"
