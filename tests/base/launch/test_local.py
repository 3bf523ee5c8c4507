"""The launcher: so many processes, started and ended together, its exit status theirs; here they are small scripts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ordsmed.base.launch import local

pytestmark = pytest.mark.long

Scripts = Callable[..., list[list[str]]]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scripts:
    """Let `ordsmed WORDS` be a script instead; tells the words of every process that was started."""
    seen: list[list[str]] = []
    real = subprocess.Popen

    def begin(command: Sequence[str], **how: Any) -> subprocess.Popen[bytes]:
        assert command[:3] == [sys.executable, "-m", "ordsmed"]
        seen.append(list(command[3:]))
        return real([sys.executable, "-S", "-c", text], cwd=tmp_path, **how)

    def use(script: str) -> list[list[str]]:
        nonlocal text
        text = "import os, signal, time\nrank = int(os.environ['RANK'])\n" + script
        return seen

    text = ""
    monkeypatch.setattr(local.subprocess, "Popen", begin)
    monkeypatch.setattr(local, "GRACE", 1.0)
    return use


def test_all_that_torchrun_sets_is_set(scripts: Scripts, tmp_path: Path) -> None:
    told = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    scripts(f"open(str(rank), 'w').write(' '.join(os.environ[n] for n in {told}))")
    assert local.start(["pretrain", "x"], 3) == 0
    said = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [s[:5] for s in said] == [[str(r), str(r), "3", "3", "127.0.0.1"] for r in range(3)]
    assert len({s[5] for s in said}) == 1


LONGER = "time.sleep(20)\nopen('outlived', 'w')"  # than the grace that others have


def test_one_that_fails_ends_all(scripts: Scripts, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others may still say what they know; who does not come to an end is ended."""
    scripts(f"if rank == 1: os._exit(3)\n{LONGER}")
    assert local.start([], 3) == 3
    assert not (tmp_path / "outlived").exists()
    assert capsys.readouterr().err == ""


def test_the_others_may_finish_what_they_say(scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "GRACE", 60.0)
    scripts("if rank == 1: os._exit(3)\ntime.sleep(0.3)\nopen('word', 'w').write('said')")
    assert local.start([], 2) == 3
    assert (tmp_path / "word").read_text() == "said"


def test_one_that_is_killed_is_named(scripts: Scripts, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripts(f"if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n{LONGER}")
    assert local.start([], 2) == 128 + signal.SIGKILL
    assert not (tmp_path / "outlived").exists()
    assert "rank 1 was ended by SIGKILL; start the same command again to resume" in capsys.readouterr().err


def test_who_lost_its_reader_is_the_cause(scripts: Scripts) -> None:
    """Whoever ends first; and nobody reads what another attempt says."""
    seen = scripts("if rank == 1: os._exit(1)\ntime.sleep(0.3)\nos._exit(141)")
    assert local.start(["x"], 2, restarts=3) == 141
    assert len(seen) == 2


def test_one_that_was_stopped_is_ended_too(scripts: Scripts) -> None:
    scripts("if rank == 1: os._exit(1)\nos.kill(os.getpid(), signal.SIGSTOP)")
    assert local.start([], 2) == 1


def test_all_begin_again_as_often_as_asked(scripts: Scripts, capsys: pytest.CaptureFixture[str]) -> None:
    """A second attempt goes on: it must not delete what the first one saved."""
    seen = scripts(
        "n = len([f for f in os.listdir() if f.startswith('r0')])\n"
        "if rank == 0:\n open(f'r0-{n}', 'w')\n os._exit(0 if n == 2 else 1)\nos._exit(0)"
    )
    assert local.start(["pretrain", "x", "--anew"], 2, restarts=5) == 0
    assert seen == [["pretrain", "x", "--anew"]] * 2 + [["pretrain", "x"]] * 4
    assert "all 2 processes restart (2 of 5)" in capsys.readouterr().err


def test_ranks_that_were_asked_themselves_do_not_begin_again(scripts: Scripts) -> None:
    seen = scripts(f"os._exit({128 + signal.SIGTERM} if rank else 0)")
    assert local.start(["x"], 2, restarts=3) == 128 + signal.SIGTERM
    assert len(seen) == 2


def test_it_gives_up_in_the_end(scripts: Scripts) -> None:
    seen = scripts("os._exit(4)")
    assert local.start(["x"], 2, restarts=1) == 4
    assert len(seen) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
def test_a_signal_is_passed_on_once_and_is_no_failure(
    scripts: Scripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Who asks to stop wants no restart; handlers are the old ones afterwards."""
    monkeypatch.setattr(local, "GRACE", 30.0)  # a busy machine may not let one of them hear for a second
    before = signal.getsignal(number)
    seen = scripts(
        f"def hear(*_):\n open(f'heard{{rank}}', 'a').write('x'); os._exit({128 + number})\n"
        f"signal.signal({int(number)}, hear)\nopen(f'ready{{rank}}', 'w')\ntime.sleep(60)"
    )

    def ask() -> None:
        while not all((tmp_path / f"ready{rank}").exists() for rank in range(2)):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=ask, daemon=True).start()
    assert local.start([], 2, restarts=3) == 128 + number
    assert len(seen) == 2
    assert [(tmp_path / f"heard{rank}").read_text() for rank in range(2)] == ["x", "x"]
    assert signal.getsignal(number) == before


def test_ranks_end_when_another_cannot_be_started(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts("time.sleep(600)")
    started, real = list[Any](), local._process

    def begin(words: Sequence[str], rank: int, *how: Any) -> subprocess.Popen[bytes]:
        if rank:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(real(words, rank, *how))
        return started[-1]

    monkeypatch.setattr(local, "_process", begin)
    with pytest.raises(BlockingIOError):
        local.start(["pretrain", "x"], 2)
    assert [process.returncode for process in started] == [-signal.SIGKILL]
