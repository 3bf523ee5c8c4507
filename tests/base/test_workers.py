"""Who works: results come in order and few tasks are in flight, whoever works; what goes wrong is told."""

from __future__ import annotations

import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base import workers
from ordsmed.base.ending import STOP_SIGNALS
from ordsmed.base.errors import DataError, Lost, RecipeError
from ordsmed.base.workers import WorkerProcess, _in_order, worker_pool


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
            assert len(drawn) <= count + 1 + (workers.AHEAD * processes + 1) * (processes > 1)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_that_of_the_task(processes: int) -> None:
    with worker_pool(processes) as spread, pytest.raises(DataError, match=r"a\.txt:3: nonsense; wanted sense"):
        list(spread(fail, ((n,) for n in range(9))))


def test_as_many_processes_as_a_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "max_processes", lambda: 2)
    with worker_pool(2) as spread:
        assert list(spread(operator.mul, [(2, 3)])) == [6]
    with pytest.raises(RecipeError, match="processes: found 3; wanted at most 2 on this machine"), worker_pool(3):
        pass


def test_a_killed_worker_is_told() -> None:
    with pytest.raises(Lost, match="a worker process: was killed, perhaps"), worker_pool(2) as spread:
        list(spread(die, ((n,) for n in range(9))))


def slow(number: int) -> int:
    time.sleep(0.2)
    return number


def test_a_signal_to_the_process_group_ends_no_worker() -> None:
    with worker_pool(2) as spread:
        results = spread(slow, ((n,) for n in range(12)))
        found = [next(results)]
        workers = [process for process in multiprocessing.active_children() if isinstance(process, WorkerProcess)]
        for number in STOP_SIGNALS:
            subprocess.run(["kill", f"-{number}", *(str(process.pid) for process in workers)], check=True)
            found.append(next(results))
        assert [*found, *results] == list(range(12))
    assert len(workers) == 2


GROUP = """
import signal, sys, time
from ordsmed.base import ending, errors, workers
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores for what it starts with &
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # and nohup this
    try:
        with ending.handling_signals(), workers.worker_pool(2) as spread:
            for _ in spread(time.sleep, [(0.05,)] * 4000):
                print("under way", flush=True)
    except KeyboardInterrupt as stopped:
        sys.exit(128 + getattr(stopped, "number", 2))
"""


def test_who_is_stopped_with_its_workers_says_nothing_else() -> None:
    """They are not said to be killed, and multiprocessing's helper leaves no stack either."""
    begun = {
        number: subprocess.Popen(
            [sys.executable, "-c", GROUP],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for number in STOP_SIGNALS
    }
    for number, process in begun.items():
        assert process.stdout
        assert process.stdout.readline() == "under way\n"
        os.killpg(process.pid, number)
    for number, process in begun.items():
        assert (process.communicate(timeout=480)[1], process.returncode) == ("", 128 + number)


def test_no_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(RecipeError, match="engine: no scheduler at"), worker_pool(engine=str(tmp_path / "s.json")):
        pass
    with pytest.raises(RecipeError, match=r"engine: no file no-such\.json"), worker_pool(engine="no-such.json"):
        pass


class Counted(Executor):
    """Does a task when somebody waits, the last or the first of those that are waited for, and keeps count."""

    def __init__(self, slow_first: bool = True) -> None:
        self.slow_first = slow_first
        self.tasks: list[tuple[Future[Any], Any, Any]] = []
        self.most = 0
        self.first_at = 0

    def submit(self, function: Any, /, *task: Any, **_: Any) -> Any:
        self.tasks.append((Future(), function, task))
        self.most = max(self.most, sum(not future.done() for future, _, _ in self.tasks))
        return self.tasks[-1][0]

    def wait(self, futures: Any, **_: Any) -> None:
        future, function, task = next(one for one in self.tasks[:: -1 if self.slow_first else 1] if one[0] in futures)
        self.first_at = len(self.tasks) if future is self.tasks[0][0] else self.first_at
        try:
            future.set_result(function(*task))
        except DataError as error:
            future.set_exception(error)


@pytest.mark.parametrize("count", [1, 3])
def test_a_few_more_tasks_are_given_than_there_are_workers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody waits behind a slow one, and no more, so that memory stays small."""
    executor = Counted()
    monkeypatch.setattr(workers, "wait", executor.wait)
    monkeypatch.setattr(
        Future, "result", lambda future, inner=Future.result: (finish(executor, future), inner(future))[1]
    )
    spread = _in_order(executor, operator.mul, ((n, 2) for n in range(200)), count)
    assert list(spread) == [2 * n for n in range(200)]
    assert executor.most == 2 * count + 1
    assert executor.first_at == workers.AHEAD * count + 1, "the first is slow: so much is ready behind it"


def test_what_is_ready_is_given_at_once() -> None:
    class Prompt(Executor):
        def submit(self, function: Any, /, *task: Any, **_: Any) -> Any:
            given.append(task)
            future = Future[Any]()
            future.set_result(function(*task))
            return future

    given = list[Any]()
    for count, _ in enumerate(_in_order(Prompt(), operator.mul, ((n, 2) for n in range(50)), 3), 1):
        assert len(given) == count


def test_an_error_calls_back_what_was_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Counted(slow_first=False)
    monkeypatch.setattr(workers, "wait", executor.wait)
    with pytest.raises(DataError):
        list(_in_order(executor, fail, ((n,) for n in range(200)), 2))
    assert [future.cancelled() for future, _, _ in executor.tasks] == [False] * 4 + [True] * 4


def finish(executor: Counted, future: Future[Any]) -> None:
    if not future.done():
        executor.wait([future])


def test_a_script_of_a_user_is_not_run_again_by_workers(tmp_path: Path) -> None:
    """Spawned processes import the caller's script; one that calls us without a guard would call us again, for good."""
    script = tmp_path / "script.py"
    text = "import os\nfrom ordsmed.base.workers import worker_pool\nprint('here', flush=True)\n"
    text += "with worker_pool(2) as spread:\n    print(sorted(spread(abs, [(-3,), (2,)])))\n"
    script.write_text(text, encoding="utf-8")
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=480)
    assert told.stdout == "here\n[2, 3]\n"
