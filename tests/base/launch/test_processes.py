"""How one of several processes is begun, and how they are waited for, without any."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

import pytest

from kit.clocks import set_time
from ordsmed.base.errors import RecipeError
from ordsmed.base.launch import local


class Process:
    """Says how it stands each time it is asked; the last answer stays."""

    def __init__(self, *states: int | None) -> None:
        self.states, self.calls = list(states), list[Any]()

    def poll(self) -> int | None:
        return self.states.pop(0) if self.states[1:] else self.states[0]

    def send_signal(self, number: int) -> None:
        self.calls.append(number)

    def kill(self) -> None:
        self.calls.append("kill")

    def wait(self) -> None:
        self.calls.append("wait")


def test_a_process_stands_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session of its own, ended with its parent; what torch says is left to who has said how much."""
    begun: list[Any] = []
    monkeypatch.setattr(local.subprocess, "Popen", lambda command, **how: begun.append((command, how)))
    for level in ("", "INFO"):
        monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", level) if level else monkeypatch.delenv(
            "TORCH_CPP_LOG_LEVEL", raising=False
        )
        monkeypatch.setenv("RANK", "9")
        local._process(["pretrain", "x"], 2, 4, 4567)
    (command, how), (_, again) = begun
    assert command == [sys.executable, "-m", "ordsmed", "pretrain", "x"]
    assert (how["start_new_session"], how["preexec_fn"]) == (True, local.end_with_parent)
    wanted = {
        "RANK": "2",
        "LOCAL_RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4567",
        "ORDSMED_DEVICES": "4",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    assert wanted.items() <= how["env"].items()
    assert how["env"]["PATH"] == os.environ["PATH"]
    assert again["env"]["TORCH_CPP_LOG_LEVEL"] == "INFO"


def test_it_waits_for_all_or_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    set_time(monkeypatch, local, sleep=slept.append)
    processes: Any = [Process(None, None, 0), Process(None, 0), Process(0)]
    assert local._first_failure(processes) is None
    assert slept[0] == local.LOOK
    assert local._first_failure([Process(None, 5), Process(None, None, 7)]) == (0, 5)  # type: ignore[list-item]
    assert local._first_failure([Process(None), Process(0), Process(None, -9)]) == (2, -9)  # type: ignore[list-item]


def test_others_have_their_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends within it is not killed; it is over when all have ended."""
    clock = [100.0]
    set_time(monkeypatch, local, monotonic=lambda: clock[0])
    set_time(monkeypatch, local, sleep=lambda seconds: clock.append(clock.pop() + seconds))
    soon, never, ended = Process(None, None, 3), Process(None), Process(0)
    local._end([soon, never, ended])  # type: ignore[list-item]
    assert clock[0] == pytest.approx(100 + local.GRACE, abs=2 * local.LOOK)
    assert [process.calls for process in (soon, never, ended)] == [["wait"], ["kill", "wait"], ["wait"]]
    clock[0] = 0.0
    local._end([Process(None, 0)])  # type: ignore[list-item]
    assert clock[0] < 2 * local.LOOK


def test_what_is_heard_is_passed_on_to_who_is_left() -> None:
    left, gone = Process(None), Process(0)
    before = {number: signal.getsignal(number) for number in local.PASSED_ON}
    with local._signals_to([left, gone]) as heard:  # type: ignore[list-item]
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.kill(os.getpid(), number)
    assert (heard, left.calls, gone.calls) == ([signal.SIGUSR1, signal.SIGTERM], [signal.SIGUSR1, signal.SIGTERM], [])
    assert {number: signal.getsignal(number) for number in local.PASSED_ON} == before


@pytest.mark.parametrize(
    ("first", "heard", "wanted", "said"),
    [
        (None, [], (0, False), ""),
        ((1, 3), [], (3, False), ""),
        ((1, 3), [15], (3, True), ""),
        ((1, -9), [], (137, False), "rank 1 was ended by SIGKILL; start the same command again"),
        ((1, -15), [15], (143, True), ""),
        ((0, 143), [], (143, True), ""),
        ((0, 137), [], (137, False), ""),
    ],
)
def test_how_an_attempt_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    first: Any,
    heard: list[int],
    wanted: Any,
    said: str,
) -> None:
    """Who was asked, itself or by way of its launcher, is not begun again."""
    import contextlib

    ended: list[int] = []
    monkeypatch.setattr(local, "_process", lambda words, rank, devices, port: Process(0))
    monkeypatch.setattr(local, "_signals_to", lambda processes: contextlib.nullcontext(heard))
    monkeypatch.setattr(local, "_first_failure", lambda processes: first)
    monkeypatch.setattr(local, "_end", lambda processes: ended.append(len(processes)))
    assert local._once(["x"], 3) == wanted
    assert ended == ([] if first is None else [3])
    assert said in (told := capsys.readouterr().err)
    assert bool(told) == bool(said)


def test_as_many_as_a_machine_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(local.host, "max_processes", lambda: 64)
    monkeypatch.setattr(local, "_once", lambda words, devices: asked.append(devices) or (0, False))
    assert local.start(["x"], 64) == 0
    with pytest.raises(RecipeError, match="--devices: found 65 processes; wanted at most 64 on this machine"):
        local.start(["x"], 65)
    assert asked == [64]


def test_a_port_is_of_one_launcher_and_its_first_rank() -> None:
    with local._port_of_our_own() as port, socket.socket() as rank, socket.socket() as stranger:
        rank.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
        rank.bind(("0.0.0.0", port))
        rank.listen()
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
    assert port > 1023


def test_who_ends_in_a_while_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_time(monkeypatch, local, sleep=lambda seconds: None)
    slow = Process(None, None, None, None, None, 0)
    local._end([slow])  # type: ignore[list-item]
    assert slow.calls == ["wait"]


def test_a_process_hears_that_its_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    library = type("Library", (), {"prctl": lambda self, *how: asked.append(how)})
    monkeypatch.setattr(local.ctypes, "CDLL", lambda name: library())
    monkeypatch.setattr(local.sys, "platform", "linux")
    local.end_with_parent()
    assert asked == [(1, signal.SIGTERM)], "PR_SET_PDEATHSIG"
    monkeypatch.setattr(local.sys, "platform", "darwin")
    local.end_with_parent()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("ends", "restarts", "status", "attempts"),
    [
        ([(1, False), (0, False), (9, False)], 5, 0, 2),
        ([(1, False)] * 9, 2, 1, 3),
        ([(1, False)], 0, 1, 1),
        ([(2, False), (143, True)], 5, 143, 2),
        ([(0, False)], 3, 0, 1),
    ],
)
def test_how_often_all_begin_again(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ends: list[tuple[int, bool]],
    restarts: int,
    status: int,
    attempts: int,
) -> None:
    """Until all went well, somebody asked to stop, or that was enough; what was saved is not deleted."""
    left, seen = iter(ends), list[list[str]]()
    monkeypatch.setattr(local, "_once", lambda words, devices: seen.append(list(words)) or next(left))
    assert local.start(["pretrain", "--anew", "x"], 2, restarts=restarts) == status
    assert seen == [["pretrain", "--anew", "x"], *[["pretrain", "x"]] * (attempts - 1)]
    said = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in said] == [
        f"all 2 processes restart ({n} of {restarts})" for n in range(1, attempts)
    ]
