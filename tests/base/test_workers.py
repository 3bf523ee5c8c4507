"""Who works: results come in order and few tasks are in flight, whoever works; what goes wrong is told."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ordsmed.base import workers
from ordsmed.base.errors import DataError, RecipeError, RunError
from ordsmed.base.workers import _in_order, worker_pool


def fail(number: int) -> int:
    if number == 3:
        raise DataError("a.txt:3", "nonsense", "sense")
    return number


def die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order_and_tasks_as_they_are_needed(processes: int) -> None:
    drawn = []

    def tasks() -> object:
        for number in range(40):
            drawn.append(number)
            yield number, 2

    with worker_pool(processes) as spread:
        for count, result in enumerate(spread(operator.mul, tasks())):
            assert result == 2 * count
            assert len(drawn) <= count + 2 * processes + 2


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_that_of_the_task(processes: int) -> None:
    with worker_pool(processes) as spread, pytest.raises(DataError, match=r"a\.txt:3: nonsense; wanted sense"):
        list(spread(fail, ((n,) for n in range(9))))


def test_as_many_processes_as_a_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "most_processes", lambda: 2)
    with worker_pool(2) as spread:
        assert list(spread(operator.mul, [(2, 3)])) == [6]
    with pytest.raises(RecipeError, match="processes: found 3; wanted at most 2 on this machine"), worker_pool(3):
        pass


def heeds_ctrl_c() -> bool:
    return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_ctrl_c_is_for_the_first_process() -> None:
    assert heeds_ctrl_c()
    with worker_pool(2) as spread:
        assert list(spread(heeds_ctrl_c, [()])) == [False]


def test_a_killed_worker_is_told() -> None:
    with pytest.raises(RunError, match="a worker process: ended without a word"), worker_pool(2) as spread:
        list(spread(die, ((n,) for n in range(9))))


def test_no_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(RecipeError, match="engine: no scheduler at"), worker_pool(engine=str(tmp_path / "s.json")):
        pass
    with pytest.raises(RecipeError, match=r"engine: no file no-such\.json"), worker_pool(engine="no-such.json"):
        pass


class Counted(Executor):
    """Answers at once, and counts how many tasks were given at a time and how many were called back."""

    def __init__(self) -> None:
        self.given = self.taken = self.most = 0
        self.cancelled: list[int] = []

    def submit(self, function: Any, /, *task: Any, **_: Any) -> Any:
        self.given += 1
        self.most = max(self.most, self.given - self.taken)
        number = self.given

        def result() -> Any:
            self.taken += 1
            return function(*task)

        return SimpleNamespace(result=result, cancel=lambda: self.cancelled.append(number))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_few_more_tasks_are_given_than_there_are_workers(workers: int) -> None:
    """So that nobody waits, and no more, so that memory stays small; an error calls back what was not begun."""
    executor = Counted()
    assert list(_in_order(executor, operator.mul, ((n, 2) for n in range(20)), workers)) == [2 * n for n in range(20)]
    assert (executor.most, executor.cancelled) == (2 * workers + 1, [])
    failing = Counted()
    with pytest.raises(DataError):
        list(_in_order(failing, fail, ((n,) for n in range(20)), workers))
    assert failing.cancelled == list(range(5, failing.given + 1))


def test_a_script_of_a_user_is_not_run_again_by_workers(tmp_path: Path) -> None:
    """Spawned processes import the caller's script; one that calls us without a guard would call us again, for good."""
    script = tmp_path / "script.py"
    text = "import os\nfrom ordsmed.base.workers import worker_pool\nprint('here', flush=True)\n"
    text += "with worker_pool(2) as spread:\n    print(sorted(spread(abs, [(-3,), (2,)])))\n"
    script.write_text(text, encoding="utf-8")
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=480)
    assert told.stdout == "here\n[2, 3]\n"
