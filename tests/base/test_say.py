"""Lines, logs and progress for people."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clocks import set_time
from ordsmed.base import say as module
from ordsmed.base.say import (
    Progress,
    allow_output,
    buffered_log,
    duration,
    in_words,
    log_to,
    many,
    operations,
    say,
    seconds,
    size,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 s"),
        (-3, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (250, "4 min 10 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h"),
        (3659, "1 h"),
        (18_120, "5 h 2 min"),
        (345_600, "4 d"),
        (349_199, "4 d"),
        (349_200, "4 d 1 h"),
        (86_399, "23 h 59 min"),
        (273_600, "3 d 4 h"),
        (86_399_999, "999 d 23 h"),
        (86_400_000, "2.74 years"),
        (618_894_000, "19.6 years"),
        (3.2e11, "10,140 years"),
    ],
)
def test_duration(number: float, text: str) -> None:
    assert duration(number) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3h", 10_800),
        ("90m", 5400),
        ("90min", 5400),
        ("1h30m", 5400),
        ("45s", 45),
        ("2d", 172_800),
        ("1d2h3m4s", 93_784),
        ("0.5h", 1800),
    ],
)
def test_seconds(text: str, number: float) -> None:
    assert seconds(text) == number


@pytest.mark.parametrize("text", ["", "3", "h", "3 h", "-3h", "30m1h", "3h!", "0h", "0h0m"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: wanted for example 3h"):
        seconds(text)


@given(st.integers(0, 40), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_seconds_of_any_time(d: int, h: int, m: int, s: int) -> None:
    assert seconds(f"{d}d{h}h{m}m{s}s") == ((d * 24 + h) * 60 + m) * 60 + s
    assert seconds(duration(60 * m + s).replace(" ", "")) == 60 * m + s


def test_lines_go_to_the_innermost_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with log_to(tmp_path / "a"):
        say("one")
        with log_to(tmp_path / "b"):
            say("[two] é")
        say("three")
    say("four")
    assert (tmp_path / "a").read_text() == "one\nthree\n"
    assert (tmp_path / "b").read_text("utf-8") == "[two] é\n"
    assert capsys.readouterr().err == "one\n[two] é\nthree\nfour\n"
    with log_to(tmp_path / "a"):
        say("five")
    assert (tmp_path / "a").read_text() == "one\nthree\nfive\n"


def test_progress_in_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0.0, 4.0)  # every look at the clock is 4 seconds on
    set_time(monkeypatch, module, monotonic=lambda: next(clock))
    with Progress("encode", 1000, "MB", every=10) as shown:
        for _ in range(8):
            shown.add(50, "loss 6.1", notes=["rate 2e-3"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(("encode: 100/1,000 MB, ", "encode: 150/1,000 MB, "))
    assert all(re.search(r" MB, loss 6\.1, .* left, rate 2e-3$", line) for line in lines)
    assert 2 <= len(lines) <= 4


def test_progress_counts_from_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    set_time(monkeypatch, module, monotonic=lambda: now[0])
    shown = Progress("pretrain", 100, "steps", done=50)
    assert shown.left() == "?"
    now[0] = 10.0
    shown.add(10)
    assert shown.left() == "40 s"
    assert Progress("x", 3.25, "MB").__enter__()._amount() == "0.0/3.2 MB"


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("outer", 10, "MB") as outer:
        assert outer.bar is not None
        with Progress("inner", 10, "MB") as inner:
            assert inner.bar is None
        outer.add(5, "[half]")
        say("a [line] above")
    assert module._bar is None
    assert "a [line] above" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (282, "282 bytes"),
        (999.4, "999 bytes"),
        (999.6, "1 kB"),
        (312_000, "312 kB"),
        (999_400, "999 kB"),
        (999_999, "1 MB"),
        (1e6, "1 MB"),
        (1.75e9, "1.75 GB"),
        (999e9, "999 GB"),
        (1e12, "1 TB"),
        (2e12, "2 TB"),
        (999.9e12, "1,000 TB"),
        (4_160_003e12, "4,160,003 TB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "document", "1 document"),
        (0, "document", "0 documents"),
        (7163, "process", "7,163 processes"),
        (1.0, "epoch", "1 epoch"),
        (2.5, "epoch", "2.5 epochs"),
        (1.0004, "pass", "1 pass"),
        (172_000.0, "hour", "172,000 hours"),
        (2, "entry", "2 entries"),
        (2, "day", "2 days"),
    ],
)
def test_one_is_one(count: float, noun: str, text: str) -> None:
    assert many(count, noun) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 FLOP"),
        (160, "160 FLOP"),
        (999.9, "1 kFLOP"),
        (1.46e10, "14.6 GFLOP"),
        (999.9e9, "1 TFLOP"),
        (3.14e23, "314 ZFLOP"),
        (3.14e25, "31,400 ZFLOP"),
    ],
)
def test_operations(count: float, text: str) -> None:
    assert operations(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"kind": "adamw", "betas": [0.9, 0.98], "slow": False}, "adamw (betas 0.9 0.98, slow false)"),
        ({"kind": "sgd"}, "sgd"),
        ({"train": 3, "test": {"a": 1}}, "train 3, test a 1"),
        (None, "-"),
        ([], "none"),
        ("Ja", "Ja"),
        (True, "true"),
    ],
)
def test_in_words(value: object, text: str) -> None:
    assert in_words(value) == text


def test_what_was_said_before_a_log_could_be_opened_is_not_lost(tmp_path: Path) -> None:
    """It stands at the head of that log; where the log never came, in the one around."""
    with log_to(tmp_path / "outer"):
        with buffered_log() as before:
            say("read")
        with log_to(tmp_path / "inner", before.getvalue()):
            say("learned")

        def fails() -> None:
            with buffered_log():
                say("wrong")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fails()
        say("after")
    assert (tmp_path / "inner").read_text() == "read\nlearned\n"
    assert (tmp_path / "outer").read_text() == "wrong\nafter\n"


def test_a_full_disk_takes_no_line_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the log or of the screen; who reads no more is told by the pipe."""

    class Full:
        def __init__(self, error: OSError) -> None:
            self.error = error

        def write(self, text: str) -> int:
            raise self.error

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return False

    with monkeypatch.context() as full:
        full.setattr(module, "_logs", [Full(OSError(28, "No space left on device"))])
        say("one")
        full.setattr(module, "_logs", [])
        full.setattr(module.sys, "stderr", Full(OSError(28, "No space left on device")))
        with log_to(tmp_path / "log"):
            say("two")
        full.setattr(module.sys, "stderr", Full(BrokenPipeError()))
        with pytest.raises(BrokenPipeError):
            say("three")
    assert (tmp_path / "log").read_text() == "two\n"
    assert capsys.readouterr().err == "one\n"


def test_who_does_not_speak_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allow_output(False)
    try:
        with log_to(tmp_path / "log"):
            say("one")
    finally:
        allow_output(True)
    say("two")
    assert ((tmp_path / "log").read_text(), capsys.readouterr().err) == ("", "two\n")


def test_whole_numbers_have_no_decimals() -> None:
    amounts = [Progress("x", total, "MB", done=5)._amount() for total in (9, 9.0, 99.94, 100.0, 1000)]
    assert amounts == ["5/9 MB", "5.0/9.0 MB", "5.0/99.9 MB", "5/100 MB", "5/1,000 MB"]


LOOP = """
from ordsmed.base.say import Progress
with Progress("pretrain", 1_600, "steps", done=120) as shown:
    shown.add(10, "loss 5.9910", "9,337 tokens/s", notes=["rate 1.96e-03", "72% of peak"])
    while input() != "end":
        shown.bar.refresh()
"""
NUMBERS = ["130/1,600", "loss 5.9910", "9,337 tokens/s", " left"]


class Terminal:
    """A process with a terminal of some width on its standard error."""

    def __init__(self, wide: int) -> None:
        self.end, inner = os.openpty()
        self.resize(wide)
        variables = {**os.environ, "TERM": "xterm"}
        variables.pop("COLUMNS", None)
        command = [sys.executable, "-c", LOOP]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=inner, env=variables, text=True)
        os.close(inner)

    def resize(self, wide: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, wide, 0, 0))

    def redrawn(self) -> str:
        """The line as it is drawn next, but for one that is on its way."""
        assert self.process.stdin
        for _ in range(2):
            self.process.stdin.write("on\n")
            self.process.stdin.flush()
            text = ""
            while NUMBERS[0] not in text or NUMBERS[-1] not in text:
                text += os.read(self.end, 10_000).decode()
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", text).replace("\r", "\n").splitlines()
        return next(line.rstrip() for line in reversed(lines) if NUMBERS[0] in line)

    def close(self) -> None:
        self.process.communicate("end\n")
        os.close(self.end)


def test_a_terminal_of_any_width_shows_loss_speed_and_time_left() -> None:
    """What else is told goes first; the width is taken anew whenever the line is drawn."""
    terminal, lines = Terminal(60), dict[int, str]()
    try:
        for wide in (60, 80, 100, 120, 80, 60):
            terminal.resize(wide)
            lines[wide] = terminal.redrawn()
            assert len(lines[wide]) <= wide
            assert [number for number in NUMBERS if number not in lines[wide]] == []
    finally:
        terminal.close()
    assert lines[60].startswith("130/1,600 ")
    assert lines[80].startswith("pretrain ")
    assert " left  rate 1.96e-03" in lines[100]
    assert lines[120].endswith("  72% of peak")
    assert "━" in lines[120]
    assert "━" not in lines[100]


@pytest.mark.parametrize("wide", [12, 26, 40, 56, 60, 63, 80, 200])
def test_numbers_are_whole_on_every_width(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long run as well; the last ones go, never half of one."""
    set_time(monkeypatch, module, monotonic=itertools.count(0.0, 1e4).__next__)
    shown = Progress("pretrain", 1_000_000, "steps")
    shown.add(12_345, "loss 11.1234", "1,234k tokens/s", notes=["rate 1.96e-03"])
    line = shown.line(wide)
    assert len(line) <= wide
    numbers = ["12,345/1,000,000", "loss 11.1234", "1,234k tokens/s", " left"]
    there = [number in line for number in numbers]
    assert there == sorted(there, reverse=True)
    assert all(there) or wide < 60
    assert (wide < 16) or there[0]


def test_a_terminal_that_cannot_redraw_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("pretrain", 10, "steps", every=-1) as shown:
        shown.add(1, "loss 6.1")
    assert "pretrain: 1/10 steps, loss 6.1, " in capsys.readouterr().err
