"""How a command ends that is asked to: signals are heard as Ctrl-C, once, by the process that listens alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from ordsmed.base import ending


def ask(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_heard_as_ctrl_c(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt) as ended, ending.handling_signals():
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
            with ending.handling_signals():
                assert signal.getsignal(signal.SIGHUP) is own
            assert signal.getsignal(signal.SIGHUP) is own
        finally:
            signal.signal(signal.SIGHUP, before)


def test_another_thread_hears_nothing() -> None:
    found: list[object] = []

    def listen() -> None:
        with ending.handling_signals():
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
with ending.handling_signals():
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
    goes_on = "stopped; finished work is kept, resume with:\n    "
    again = "stopped; nothing was kept, start again with:\n    "
    assert (
        ending.stop_lines("pretrain", ["a b", "--anew", "x=1"], ending.GOES_ON)
        == f"{goes_on}ordsmed pretrain 'a b' x=1"
    )
    assert (
        ending.stop_lines("corpus shards", ["a", "--anew"], ending.BEGINS_AGAIN)
        == f"{again}ordsmed corpus shards a --anew"
    )
    assert ending.stop_lines("fill", ["r"]) == "stopped"
    assert ending.devices_flag() == []
    monkeypatch.setenv(ending.DEVICES, "4")
    assert ending.devices_flag() == ["--devices", "4"]
    assert ending.stop_lines("finetune", ["r"], ending.GOES_ON) == f"{goes_on}ordsmed finetune r --devices 4"


APART = """
import atexit, os, sys
from ordsmed import cli
from ordsmed.base import ending

class Apart:
    def __del__(self, write=os.write):
        write(1, b"taken apart")

def run(words, began):
    held.append(Apart())
    if "connected" in words:
        ending.note_connected()
    print("told", end=" ")
    sys.stderr.write("half a line ")
    match words[-1]:
        case "":
            return
        case "error":
            raise ValueError
        case "text":
            sys.exit("a text")
        case status:
            sys.exit(None if status == "None" else int(status))

held = []
cli._run = run
atexit.unregister(cli.gc.freeze)
atexit.register(print, "done", end=" ")
cli.main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("word", "status"), [("", 0), ("None", 0), ("0", 0), ("1", 1), ("141", 141), ("text", 1), ("error", 1)]
)
def test_who_was_connected_ends_at_once(word: str, status: int) -> None:
    """By its status, with all that it said and had to do; others are taken apart by Python as ever."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for words, wanted in (["connected"], "told done "), ([], "told done taken apart"):
        command = [sys.executable, "-c", APART, *words, word]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout) == (status, wanted), run.stderr
        assert "half a line" in run.stderr
        assert ("ValueError" in run.stderr) == (word == "error")


def test_an_earlier_command_that_was_connected_ends_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda status: pytest.fail(f"ended by {status}"))
    with ending.recording_status():
        ending.note_connected()
    with ending.recording_status():
        pass
    ending.exit_at_once()


SLOW = """
import atexit, os, sys, time
import torch, torch.distributed as dist
from ordsmed import cli
from ordsmed.base import ranks

class Slow:
    def __init__(self, seconds):
        self.seconds = seconds

    def __del__(self, sleep=time.sleep):
        sleep(self.seconds)

late = Slow(10)  # Python is longer about it, when it takes this apart

def run(words, began):
    global own  # its groups would wait for their threads when they are let go of
    own = ranks.join(ranks.prepare("cpu"), (2, 1, 1), 60)
    tensor = torch.ones(4)
    tensor.slow = Slow(2)
    if own.rank:
        time.sleep(0.2)
    dist.all_reduce(tensor, async_op=True)
    del tensor  # torch's thread is the last that holds it
    if not own.rank:
        time.sleep(0.4)
    ranks.disconnect(own)
    sys.exit(7)

cli._run = run
atexit.unregister(cli.gc.freeze)
cli.main([])
"""


@pytest.mark.long
def test_a_tensor_that_is_still_held_aborts_nothing() -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        env = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(holder.getsockname()[1]), "WORLD_SIZE": "2"}
        both = [subprocess.Popen([sys.executable, "-c", SLOW], env=env | {"RANK": str(rank)}) for rank in range(2)]
        assert [process.wait(60) for process in both] == [7, 7]
