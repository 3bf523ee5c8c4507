"""Runs side by side, looked at without making one: where they run, how they are begun and ended, why one failed."""

from __future__ import annotations

import signal
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from kit.clocks import set_time
from ordsmed.base import run
from ordsmed.base.errors import Lost
from ordsmed.learn.tasks import classify
from ordsmed.nn.models import bert
from ordsmed.train import run_group
from ordsmed.train.finetune.plan import FinetuningPlan
from ordsmed.train.finetune.recipe import Finetuning
from ordsmed.train.finetune.trials import FinetuningTrials as Trials
from ordsmed.train.mesh.layout import Layout
from ordsmed.train.run_group import PlannedRun


def planned(folder: Path, *, seeds: tuple[int, ...], **how: Any) -> list[PlannedRun]:
    task = classify.Classify(train="train.tsv", dev="dev.tsv", length=16)
    asked = {"task": task, "model": bert.Bert(), "tokenizer": "vocab.txt", "steps": 5, **how}
    return [
        PlannedRun(f"seed-{seed}", Finetuning(**asked, seed=seed, out=str(folder / "runs" / f"seed-{seed}")))
        for seed in seeds
    ]


def test_why_a_run_failed(tmp_path: Path) -> None:
    (one,) = planned(tmp_path, seeds=(1,))
    one.output_file.parent.mkdir(parents=True)
    one.output_file.write_text("step 1\nordsmed: here: wrong; wanted right\nordsmed: there: wrong too\nmore\n")
    assert run_group.failure_of(one, 1) == "there: wrong too"
    one.output_file.write_text("Traceback\n")
    assert run_group.failure_of(one, 3) == f"exit status 3; see {one.output_file}"
    assert run_group.failure_of(one, -signal.SIGKILL) == f"ended by SIGKILL; see {one.output_file}"
    assert run_group.failure_of(one, 0) == ""
    assert not one.output_file.exists()


@pytest.mark.parametrize(
    ("device", "gpus", "jobs", "most", "wanted"),
    [
        ("auto", ["0", "3"], 0, 9, ["0", "3"]),
        ("cuda", ["0", "3"], 3, 9, ["0", "3", "0"]),
        ("auto", ["0", "3"], 0, 1, ["0"]),
        ("auto", [], 0, 9, [None] * 4),
        ("cpu", ["0", "3"], 0, 9, [None] * 4),
        ("cpu", [], 2, 9, [None] * 2),
        ("cpu", [], 0, 3, [None] * 3),
        ("cuda:1", ["0", "3"], 0, 9, [None]),
    ],
)
def test_places_side_by_side(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    gpus: list[str],
    jobs: int,
    most: int,
    wanted: list[Any],
) -> None:
    """A GPU each where there are some, else one to two cores; never more than there are runs."""
    monkeypatch.setattr(run_group, "gpus_here", lambda: gpus)
    monkeypatch.setattr(run_group, "cores", lambda: 8)
    found = run_group.places_of(device, jobs, most).environments
    assert [place.get("CUDA_VISIBLE_DEVICES") for place in found] == wanted


@pytest.mark.parametrize(
    ("gpus", "devices", "wanted"),
    [(["0", "1", "2", "3", "4"], 2, ["0,1", "2,3"]), (["0", "1"], 2, ["0,1"]), ([], 4, [None] * 2)],
)
def test_runs_of_several_devices_have_them_for_themselves(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], devices: int, wanted: list[Any]
) -> None:
    monkeypatch.setattr(run_group, "gpus_here", lambda: gpus)
    monkeypatch.setattr(run_group, "cores", lambda: 8)
    found = run_group.places_of("auto", 0, 9, devices)
    assert [place.get("CUDA_VISIBLE_DEVICES") for place in found.environments] == wanted
    assert found.devices == devices


def test_a_machine_of_one_core_makes_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_group, "cores", lambda: 1)
    assert len(run_group.places_of("cpu", 0, 9).environments) == 1


def test_gpus_as_this_process_may_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_group.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(run_group.torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert run_group.gpus_here() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-ab,9")
    assert run_group.gpus_here() == ["5", "GPU-ab"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(run_group.torch.cuda, "is_available", lambda: False)
    assert run_group.gpus_here() == []


class Process:
    """A run that ends when it is looked at for the second time."""

    def __init__(self, one: PlannedRun, running: set[str], status: int = 0) -> None:
        self.name, self.running, self.returncode, self.looks = one.name, running, status, 0
        running.add(self.name)

    def poll(self) -> int | None:
        self.looks += 1
        if self.looks < 2:
            return None
        self.running.discard(self.name)
        return self.returncode


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> tuple[list[tuple[str, Any, int]], list[int]]:
    """Which runs were begun where and on how many threads, and how many ran at a time."""
    begun: list[tuple[str, Any, int]] = []
    together: list[int] = []
    running: set[str] = set()

    def start(one: PlannedRun, place: dict[str, str], threads: int, devices: int) -> Process:
        begun.append((one.name, place.get("gpu"), threads))
        made = Process(one, running, status=len(begun) - 1)
        together.append(len(running))
        return made

    monkeypatch.setattr(run_group, "start", start)
    monkeypatch.setattr(run_group, "LOOK", 0.0)
    monkeypatch.setattr(run_group, "threads_of", lambda local_world: 6 // local_world)
    return begun, together


def test_as_many_runs_as_places(tmp_path: Path, started: Any) -> None:
    """Each place is taken again when its run is done; cores are shared out."""
    made, (begun, together) = planned(tmp_path, seeds=(1, 2, 3, 4, 5)), started
    found = list(run_group.side_by_side(deque(made), run_group.Places(({"gpu": "a"}, {"gpu": "b"})), lambda: 0))
    assert sorted(one.name for one, _ in found) == [one.name for one in made]
    assert sorted(status for _, status in found) == [0, 1, 2, 3, 4]
    assert max(together) == 2
    assert [where for _, where, _ in begun[:2]] == ["a", "b"]
    assert {threads for _, _, threads in begun} == {3}


def test_asked_to_stop_no_more_runs_begin(tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(run_group, "end", lambda running: ended.append(len(running)))
    asks = iter([0, 15, 15])
    found = list(
        run_group.side_by_side(
            deque(planned(tmp_path, seeds=(1, 2, 3))), run_group.Places(({}, {})), lambda: next(asks)
        )
    )
    assert (found, len(started[0]), ended) == ([], 2, [2])


def test_between_two_looks_it_sleeps(tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting must not cost the runs a core."""
    slept: list[float] = []
    set_time(monkeypatch, run_group, sleep=slept.append)
    list(run_group.side_by_side(deque(planned(tmp_path, seeds=(1, 2))), run_group.Places(({},)), lambda: 0))
    assert slept == [run_group.LOOK] * 4


def test_who_is_asked_a_second_time_ends_runs_at_once() -> None:
    done: list[str] = []

    class Slow:
        def terminate(self) -> None:
            done.append("terminate")

        def kill(self) -> None:
            done.append("kill")

        def wait(self) -> None:
            done.append("wait")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_group.end([Slow(), Slow()])  # type: ignore[list-item]
    assert done == ["terminate", "terminate", "wait", "kill", "kill"]


def test_what_a_run_is_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(run_group.subprocess, "Popen", lambda words, **how: begun.append((words, how)))
    free, said = planned(tmp_path, seeds=(1,))[0], planned(tmp_path, seeds=(1,), layout=Layout(threads=2))[0]
    free.output_file.parent.mkdir(parents=True)
    for one in (free, said):
        run_group.start(one, {"CUDA_VISIBLE_DEVICES": "3"}, 5)
    assert begun[0][0][1:] == ["-m", "ordsmed", "finetune", str(free.path), "layout.threads=5"]
    assert begun[1][0][-1] == str(said.path), "the recipe's own number"
    assert begun[0][1]["env"]["CUDA_VISIBLE_DEVICES"] == "3"
    assert begun[0][1]["start_new_session"], "or Ctrl-C would reach it twice"
    assert begun[0][1]["preexec_fn"] is run_group.end_with_parent, "or it would go on when this process is killed"
    run_group.start(free, {}, 1, devices=2)
    assert begun[2][0][-3:] == ["layout.threads=1", "--devices", "2"]


def test_a_run_that_stands_is_started_with_its_own_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(run_group.subprocess, "Popen", lambda words, **how: begun.append(words))
    (one,) = planned(tmp_path, seeds=(1,))
    one.folder.mkdir(parents=True)
    run.Run(one.folder).set(threads=3)
    run_group.start(one, {}, 8)
    (one.folder / "checkpoints" / "step-000000005").mkdir(parents=True)
    (one.folder / "checkpoints" / "step-000000005" / "state.json").write_text('{"threads": 2}')
    run_group.start(one, {}, 8)
    assert [words[-1] for words in begun] == ["layout.threads=3", "layout.threads=2"]


def test_a_run_that_ended_well_but_is_not_done_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_group, "side_by_side", lambda waiting, places, stopped: ((one, 0) for one in waiting))
    told: list[str] = []
    made = planned(tmp_path, seeds=(1, 2))
    for one, state in zip(made, ("stopped", "done"), strict=True):
        one.folder.mkdir(parents=True)
        one.output_file.write_text("")
        run.Run(one.folder).set(state=state)
    group = Trials(folder=tmp_path, recipe=made[0].recipe, runs=tuple(made), plan=FinetuningPlan)  # type: ignore[arg-type]
    failed = group.make(lambda one, left: told.append(one.name))
    assert (told, list(failed)) == ([], ["seed-1"])
    assert "seed-1 failed: stopped before its end (ORDSMED_STOP_AT); run the same command" in capsys.readouterr().err


def test_a_run_whose_process_was_killed_is_tried_again(
    tmp_path: Path, started: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of its own, and a signal that asked it to stop, are no such thing; nor is it tried for ever."""
    ends = {"seed-1": [-signal.SIGKILL, Lost.status, 0], "seed-2": [1], "seed-3": [128 + signal.SIGKILL] * 3}
    made, told = planned(tmp_path, seeds=(1, 2, 3)), list[str]()
    for one in made:
        one.folder.mkdir(parents=True)
        run.Run(one.folder).set(state="done")
    real = run_group.start

    def start(one: PlannedRun, *place: Any) -> Any:
        one.output_file.touch()
        process = real(one, *place)
        process.returncode = ends[one.name].pop(0)  # type: ignore[attr-defined]
        return process

    monkeypatch.setattr(run_group, "start", start)
    monkeypatch.setattr(PlannedRun, "done", property(lambda one: not ends[one.name]))
    group = Trials(folder=tmp_path, recipe=made[0].recipe, runs=tuple(made), plan=FinetuningPlan)  # type: ignore[arg-type]
    failed = group.make(lambda one, left: told.append(one.name))
    assert (told, sorted(failed), ends) == (["seed-1"], ["seed-2", "seed-3"], {name: [] for name in ends})
    assert "seed-3 was killed and is resumed (attempt 3 of 3)" in capsys.readouterr().err
