"""Who works: results come in order and few tasks are in flight, whoever works; what goes wrong is told."""

from __future__ import annotations

import operator
import os
import signal
from pathlib import Path

import pytest

from ordsmed.base.crew import crew
from ordsmed.base.errors import DataError, RecipeError, RunError


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

    with crew(processes) as spread:
        for count, result in enumerate(spread(operator.mul, tasks())):
            assert result == 2 * count
            assert len(drawn) <= count + 2 * processes + 2


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_is_that_of_the_task(processes: int) -> None:
    with crew(processes) as spread, pytest.raises(DataError, match=r"a\.txt:3: nonsense; wanted sense"):
        list(spread(fail, ((n,) for n in range(9))))


def test_a_killed_worker_is_told() -> None:
    with pytest.raises(RunError, match="a worker process: ended without a word"), crew(2) as spread:
        list(spread(die, ((n,) for n in range(9))))


def test_no_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(RecipeError, match="engine: no scheduler at"), crew(engine=str(tmp_path / "s.json")):
        pass
    with pytest.raises(RecipeError, match=r"engine: no file no-such\.json"), crew(engine="no-such.json"):
        pass
