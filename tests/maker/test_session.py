"""Seconds that a command used: over all sessions, a killed one included, from the start of the process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kit.clocks import set_time
from ordsmed.base.run import Run
from ordsmed.maker import session
from ordsmed.maker.session import Clock, timed


def test_a_killed_session_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    set_time(monkeypatch, session, monotonic=lambda: now[0])
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
    assert not (tmp_path / session.NOTE).exists()


def test_it_is_noted_while_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BEAT", 0.001)
    place = Run(tmp_path)
    place.set(state="running")
    with timed(place):
        while not (tmp_path / session.NOTE).exists():
            time.sleep(0.001)
        assert Clock(place).used >= 0.0


def test_time_counts_from_the_start_of_the_process(tmp_path: Path) -> None:
    assert 29.0 < Clock(Run(tmp_path), time.time() - 30.0).used < 40.0
    assert Clock(Run(tmp_path)).used < 5.0


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    (tmp_path / session.NOTE).write_text("{")
    Run(tmp_path).set(seconds=7.0)
    assert Clock(Run(tmp_path)).used == pytest.approx(7.0, abs=1.0)
