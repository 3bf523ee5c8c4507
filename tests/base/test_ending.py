"""How a command ends that is asked to: signals are heard as Ctrl-C, once, by the process that listens alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ordsmed.base import ending


def ask(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_heard_as_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt) as ended, ending.heard():
            ask(number)
        assert isinstance(ended.value, ending.Ended)
        assert (ended.value.number, str(ended.value)) == (number, number.name)
        assert signal.getsignal(number) is signal.SIG_DFL, "nobody listens any more"
    finally:
        signal.signal(number, before)


def test_who_listens_already_goes_on_listening() -> None:
    """`nohup`, which ignores SIGHUP, and a run's own loop."""
    for own in (signal.SIG_IGN, lambda *_: None):
        before = signal.signal(signal.SIGHUP, own)
        try:
            with ending.heard():
                assert signal.getsignal(signal.SIGHUP) is own
            assert signal.getsignal(signal.SIGHUP) is own
        finally:
            signal.signal(signal.SIGHUP, before)


def test_another_thread_hears_nothing() -> None:
    found: list[object] = []

    def listen() -> None:
        with ending.heard():
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        assert found == [signal.SIG_DFL]
    finally:
        signal.signal(signal.SIGTERM, before)


FORKS = """
import os, signal, time
from ordsmed.base import ending
with ending.heard():
    child = os.fork()
    if not child:
        try:
            time.sleep(20)
        finally:
            print("heard", flush=True)
    time.sleep(0.3)
    os.kill(child, signal.SIGTERM)
    print(os.waitpid(child, 0)[1])
"""


def test_a_forked_process_ends_as_any_other() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == ([str(int(signal.SIGTERM))], "")


def test_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ending.DEVICES, raising=False)
    goes_on = "stopped; what is done stands, go on with: "
    again = "stopped; nothing is left of it, begin again with: "
    assert (
        ending.stopped("pretrain", ["a b", "--anew", "x=1"], ending.GOES_ON) == f"{goes_on}ordsmed pretrain 'a b' x=1"
    )
    assert (
        ending.stopped("corpus shards", ["a", "--anew"], ending.BEGINS_AGAIN)
        == f"{again}ordsmed corpus shards a --anew"
    )
    assert ending.stopped("fill", ["r"]) == "stopped"
    assert ending.side_by_side() == []
    monkeypatch.setenv(ending.DEVICES, "4")
    assert ending.side_by_side() == ["--devices", "4"]
    assert ending.stopped("finetune", ["r"], ending.GOES_ON) == f"{goes_on}ordsmed finetune r --devices 4"
